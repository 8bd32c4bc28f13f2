//! Nodes that are those of an allocation of a real Slurm.

use std::{fs, time::Duration};

use coswitch_tests::{
    serving::{VERIFIED, switches},
    slurm::{self, Batch, Slurm},
};

const LIMIT: Duration = Duration::from_secs(600);
const CLEAN_LIMIT: Duration = Duration::from_secs(60);
const RUN: &str = "exec {coswitch} run --quiet --out {out} {dir}/jobs.yaml";
/// Of a machine's 2000 MiB. An arena of 32 MiB and 128 MiB for coswitch leave 150 MiB.
const TWO_NODES: [&str; 4] = ["--nodes=2", "--ntasks-per-node=2", "--mem=310", "--time=10"];

/// Two jobs of 90 MiB on each node do not fit together.
fn jobs(cluster: &str, job: &str) -> String {
    format!(
        "cluster: {{nodes: slurm, arena: 32MiB{cluster}}}\n\
         scheduler: {{policy: gang, quantum: 400ms, residency: none}}\n\
         jobs:\n  - {{name: job, ranks: 2, memory: 90MiB, {job}}}\n"
    )
}

fn two_jobs(cluster: &str, seconds: u32) -> String {
    let job = format!("count: 2, command: [\"{{bin}}/heat\", --memory, 40MiB, --seconds, \"{seconds}\"]");
    jobs(cluster, &job)
}

fn submit(slurm: &Slurm, run_file: &str, options: &[&str], script: &str) -> Batch {
    slurm.write("jobs.yaml", run_file);
    slurm.submit("batch", options, script)
}

/// How many directories the nodes have in the store that they share.
fn stored(slurm: &Slurm) -> usize {
    fs::read_dir(slurm.path("store")).expect("a directory").count()
}

/// Goes on with the parked run in another allocation: how that ended, and what it said.
fn resumed(slurm: &Slurm, name: &str) -> (String, String) {
    let next = slurm.submit(name, &TWO_NODES, "exec {coswitch} run --quiet --resume {dir}/batch.run");
    slurm.ended(&next, name, LIMIT)
}

fn both_are_right(batch: &Batch) {
    for job in ["job-1", "job-2"] {
        assert!(batch.output(job, 0).contains(VERIFIED), "{}", batch.output(job, 0));
    }
}

/// A run that fails before it begins: what it says, and its exit code.
fn refused(run_file: &str, options: &[&str], script: &str) -> (String, String) {
    slurm::with_nodes(2, |slurm| {
        let batch = submit(slurm, run_file, options, script);
        let ended = slurm.ended(&batch, "batch", LIMIT);
        slurm.assert_nothing_left(&batch, CLEAN_LIMIT);
        ended
    })
}

#[test]
fn jobs_are_switched_in_an_allocation_and_nothing_is_left() {
    slurm::with_nodes(2, |slurm| {
        let batch = submit(slurm, &two_jobs("", 2), &TWO_NODES, RUN);
        let (how, log) = slurm.ended(&batch, "batch", LIMIT);
        assert_eq!(how, "COMPLETED 0:0", "{log}");
        both_are_right(&batch);
        assert!(switches(&batch.events()) > 2, "{:?}", batch.events());
        slurm.assert_nothing_left(&batch, CLEAN_LIMIT);
    });
}

#[test]
fn a_rank_sees_nothing_of_slurm_and_nobody_sees_the_key_on_a_command_line() {
    slurm::with_nodes(2, |slurm| {
        let command = "command: [/bin/sh, -c, \"env; tr '\\\\0' ' ' < /proc/1/environ; echo\"]";
        let run_file = jobs("", command).replace("ranks: 2", "ranks: 1");
        let batch = submit(slurm, &run_file, &TWO_NODES, RUN);
        let (how, log) = slurm.ended(&batch, "batch", LIMIT);
        assert_eq!(how, "COMPLETED 0:0", "{log}");
        let output = batch.output("job", 0);
        let is_slurms =
            |line: &str| ["SLURM", "SBATCH", "PMIX", "COSWITCH_HOME"].iter().any(|of| line.contains(of));
        let seen: Vec<&str> = output.lines().filter(|line| is_slurms(line)).collect();
        assert!(seen.is_empty() && output.contains("PMI_RANK=0"), "{seen:?}\n{output}");
        slurm.assert_nothing_left(&batch, CLEAN_LIMIT);
    });
}

#[test]
fn a_run_that_is_cancelled_leaves_nothing() {
    slurm::with_nodes(2, |slurm| {
        let batch = submit(slurm, &two_jobs("", 600), &TWO_NODES, RUN);
        slurm.wait_until("a switch", LIMIT, || switches(&batch.events()) > 0);
        assert!(!slurm.left(&batch).is_empty());
        assert!(slurm.run(&["scancel", &batch.job.to_string()]).status.success());
        let (how, _) = slurm.ended(&batch, "batch", LIMIT);
        assert!(how.starts_with("CANCELLED"), "{how}");
        slurm.assert_nothing_left(&batch, CLEAN_LIMIT);
    });
}

#[test]
fn the_end_of_an_allocation_parks_all_jobs_and_the_next_one_goes_on_with_them() {
    slurm::with_nodes(2, |slurm| {
        // They begin to compute in the second allocation, whatever the speed of the machine.
        let job = "count: 2, command: [/bin/sh, -c, \"while [ ! -e {dir}/go ]; do sleep 0.1; done; \
                   exec {bin}/heat --memory 40MiB --seconds 1\"]";
        let options = ["--nodes=2", "--ntasks-per-node=2", "--mem=310", "--time=1"];
        let batch = submit(slurm, &jobs(", store: \"{dir}/store\"", job), &options, RUN);
        let (how, log) = slurm.ended(&batch, "batch", LIMIT);
        assert!(how == "FAILED 6:0" && log.contains("coswitch run --resume"), "{how} {log}");
        slurm.assert_nothing_left(&batch, CLEAN_LIMIT);
        assert_eq!(stored(slurm), 2, "one directory for each node");
        fs::write(slurm.path("go"), "").expect("a file");
        let (how, log) = resumed(slurm, "next");
        assert_eq!(how, "COMPLETED 0:0", "{log}");
        both_are_right(&batch);
        slurm.assert_nothing_left(&batch, CLEAN_LIMIT);
        assert_eq!(stored(slurm), 0);
    });
}

#[test]
fn a_warning_parks_jobs_that_go_on_where_the_images_are_and_are_left_alone_where_they_are_not() {
    slurm::with_nodes(2, |slurm| {
        let batch = submit(slurm, &two_jobs(", store: \"{dir}/store\"", 3), &TWO_NODES, RUN);
        slurm.wait_until("a switch", LIMIT, || switches(&batch.events()) > 0);
        let job = batch.job.to_string();
        assert!(slurm.run(&["scancel", "--batch", "--signal=USR1", &job]).status.success());
        let (how, log) = slurm.ended(&batch, "batch", LIMIT);
        assert_eq!(how, "FAILED 6:0", "{log}");
        slurm.assert_nothing_left(&batch, CLEAN_LIMIT);
        // As if the second node had kept its images to itself.
        let all = fs::read_dir(slurm.path("store")).expect("a directory").flatten().map(|entry| entry.path());
        let of_second = all.into_iter().find(|path| path.display().to_string().ends_with("-n1"));
        let (there, away) = (of_second.expect("it has one"), slurm.path("away"));
        fs::rename(&there, &away).expect("it can be moved");
        let (how, log) = resumed(slurm, "next");
        let says = |what: &str| log.contains(what);
        assert!(how == "FAILED 4:0" && says("`job-1` on node-1") && says("share"), "{how} {log}");
        assert_eq!(stored(slurm), 2, "the images of the first are there, and an empty directory");
        fs::remove_dir(&there).expect("it is empty");
        fs::rename(&away, &there).expect("it can be moved");
        let (how, log) = resumed(slurm, "last");
        assert_eq!(how, "COMPLETED 0:0", "{log}");
        both_are_right(&batch);
        slurm.assert_nothing_left(&batch, CLEAN_LIMIT);
        assert_eq!(stored(slurm), 0);
    });
}

#[test]
fn a_daemon_ends_with_the_process_that_has_started_it() {
    slurm::with_nodes(2, |slurm| {
        let batch = submit(slurm, &two_jobs("", 600), &TWO_NODES, RUN);
        slurm.wait_until("a switch", LIMIT, || switches(&batch.events()) > 0);
        slurm.kill(1, "slurmstepd");
        let (how, _) = slurm.ended(&batch, "batch", LIMIT);
        assert_ne!(how, "COMPLETED 0:0");
        slurm.assert_nothing_left(&batch, CLEAN_LIMIT);
    });
}

#[test]
fn a_step_that_waits_for_resources_is_named_with_the_option_that_it_lacks() {
    // Another step of the job holds its processors, and a wrapper takes the option away.
    let script = "srun --ntasks=4 --exact sleep 300 & sleep 2; COSWITCH_SRUN={dir}/srun; \
                  export COSWITCH_SRUN; {coswitch} run --quiet --out \
                  {out} {dir}/jobs.yaml; code=$?; kill $!; wait; exit $code";
    slurm::with_nodes(2, |slurm| {
        let wrapper = "#!/bin/sh\nfor word in \"$@\"; do shift; [ \"$word\" = --overlap ] || set -- \"$@\" \
                       \"$word\"; done\nexec srun \"$@\"\n";
        fs::write(slurm.path("srun"), wrapper).expect("a file");
        assert!(slurm.run(&["chmod", "+x", &slurm.path("srun").display().to_string()]).status.success());
        let batch = submit(slurm, &two_jobs("", 2), &TWO_NODES, script);
        let (how, log) = slurm.ended(&batch, "batch", LIMIT);
        assert_eq!(how, "FAILED 4:0", "{log}");
        assert!(log.contains("waits for resources") && log.contains("`--overlap`"), "{log}");
        slurm.assert_nothing_left(&batch, CLEAN_LIMIT);
    });
}

#[test]
fn a_run_file_that_asks_for_more_than_the_allocation_is_refused_with_its_line() {
    let (how, log) = refused(&two_jobs(", memory: 200MiB", 2), &TWO_NODES, RUN);
    assert_eq!(how, "FAILED 2:0", "{log}");
    assert!(log.contains("jobs.yaml:1") && log.contains("310MiB") && log.contains("150MiB is left"), "{log}");
}

#[test]
fn a_node_without_the_files_of_a_job_is_named() {
    let run_file = two_jobs("", 2).replace("ranks: 2", "cwd: \"{dir}/own/work\", ranks: 2");
    // Only the first node has it.
    let (how, log) = refused(
        &run_file,
        &TWO_NODES,
        &format!("mkdir {{dir}}/own/work; {RUN}; rmdir {{dir}}/own/work").replace("exec ", ""),
    );
    assert!(log.contains("n1") && log.contains("own/work") && log.contains("all nodes share"), "{how} {log}");
}
