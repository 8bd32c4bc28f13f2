//! Tests of the run core: stories of inputs and outputs. Random ones are in [`chance`].

use std::{collections::BTreeMap, time::Duration};

use coswitch_dispatcher::protocol::{AppOutcome, Delivery, Held, StayCause, Wait};
use coswitch_policies::{
    Allowance, Alternate, AutoQuantum, Bytes, Capacity, Epoch, Estimate, NodeId, Oracle, Packing, Policy,
    Residence, Residency, Rotation, ShortOfMemory, SwitchOrder,
    spaceshare::choice::{AllocatorName, QueueName},
};

use super::*;
use crate::{
    config::{ClusterConfig, Settings},
    past::Past,
};

mod adoption;
mod balanced;
mod chance;
mod draining;
mod parking;
mod partitions;
mod requests;
mod submissions;

const NODES: u32 = 2;
const MIB: u64 = 1 << 20;

fn job(id: u32, mib: u64, arrival_ms: u64) -> Job {
    Job {
        id: JobId(id),
        name: format!("job-{id}"),
        program: "/bin/true".into(),
        delivery: Delivery::default(),
        arguments: vec![],
        ranks: NODES,
        memory: Bytes(mib * MIB),
        arrival: millis(arrival_ms),
        after: Vec::new(),
        env: BTreeMap::new(),
        cwd: "/".into(),
        alone: None,
        time_limit: None,
        owner: None,
        wait: None,
        priority: 0,
        group: None,
        queue: None,
    }
}

fn job_set(jobs: Vec<Job>, switching: SwitchOrder, residency: Residency) -> JobSet {
    JobSet {
        name: "test".into(),
        file: "test.yaml".into(),
        cluster: ClusterConfig {
            hosts: Vec::new(),
            allocation: None,
            nodes: NODES,
            memory: Capacity::OfAll(Bytes(100 * MIB)),
            memory_asked: BTreeSet::new(),
            power: Vec::new(),
            rate: None,
            encryption: None,
            arena: None,
            store: vec![],
            copies: 0,
            lost_after: Duration::from_secs(600),
            heartbeats: coswitch_dispatcher::watch::Heartbeats::default(),
            stop_after: Duration::from_secs(600),
            mean_time_between_failures: None,
        },
        scheduler: Settings {
            policy: Policy::Hybrid,
            queue: QueueName::default(),
            allocator: AllocatorName::default(),
            sets: None,
            quantum: Duration::from_secs(1),
            auto: None,
            auto_bounds: AutoQuantum { overhead: 20_000, longest: Duration::from_secs(600) },
            switching,
            short_of_memory: ShortOfMemory::default(),
            oracle: Oracle::default(),
            residency,
            needs: Estimate::default(),
            park: ParkMethod::Criu,
            max_per_cell: None,
            max_queued: None,
            max_queued_per_user: None,
            time_limits: TimeLimits::default(),
            packing: Packing::default(),
            rotation: Rotation::Set,
            alternate: Alternate::default(),
            slice: None,
            local: None,
            wait: Wait::Block,
        },
        jobs,
    }
}

fn millis(ms: u64) -> SimTime {
    SimTime::from(Duration::from_millis(ms))
}

fn failed() -> StayCause {
    StayCause::Failed { reason: "a test".into() }
}

fn full() -> StayCause {
    StayCause::StoreFull { reason: "a test".into() }
}

/// What a reader of a story wants to see of an output.
fn shown(output: &Output) -> Option<String> {
    let listed = |jobs: &[JobId]| jobs.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    Some(match output {
        Output::Launch(job, _) => format!("launch {job}"),
        Output::Order(job, order) => format!("{order:?} {job}").to_lowercase(),
        Output::Allow(node, allowance) => {
            let allowance = allowance.as_ref().map(|Allowance { total, arriving }| match arriving.len() {
                0 => total.to_string(),
                _ => format!("{total} with {}", listed(&arriving.keys().copied().collect::<Vec<_>>())),
            });
            format!("{node} allows {}", allowance.unwrap_or("all".into()))
        }
        Output::Strobe(Rows { rows, .. }) => {
            let rows = rows.iter().map(|row| listed(&row.iter().copied().collect::<Vec<_>>()));
            format!("slices of {}", rows.collect::<Vec<_>>().join(" | "))
        }
        Output::SetSlices(Slices { parallel, local }) => format!("ranks {parallel:?}, local tasks {local:?}"),
        Output::Restart(node) => format!("restart {node}"),
        Output::Replace(node) => format!("replace the daemon of {node}"),
        Output::Release(node, job) => format!("{node} removes {job}"),
        Output::Move(job, from, to) => format!("{job} moves from {from} to {to}"),
        Output::DropCopies(node, job) => format!("{node} removes copies of {job}"),
        Output::Over(outcome) => format!("over {outcome:?}"),
        Output::Answer(_, reply) => requests::shown(reply),
        Output::Adopt(job, ..) => format!("adopt {job}"),
        Output::Keep(_) => return None,
        Output::Tell(RunEvent { kind, .. }) => match kind {
            Event::JobSubmitted { job, .. } => format!("submitted {job}"),
            Event::SlotStarted { jobs, ends, .. } => {
                let ends = ends.map_or(String::new(), |at| format!(" until {:?}", at.since(SimTime(0))));
                format!("turn of {}{ends}", listed(jobs))
            }
            Event::SwitchEnded { misplaced, .. } if misplaced.is_empty() => "switched".into(),
            Event::SwitchEnded { misplaced, .. } => {
                let shown = misplaced.iter().map(|there| {
                    let no_room =
                        if there.cause == coswitch_policies::Cause::NoRoom { ", no room" } else { "" };
                    format!("{} {:?}{no_room}", there.job, there.at)
                });
                format!("misplaced {}", shown.collect::<Vec<_>>().join(", ")).to_lowercase()
            }
            Event::JobFinished { job, outcome, .. } => format!("{job} ended {outcome:?}"),
            Event::NodeLost { node, .. } => format!("{node} is lost"),
            Event::DaemonReplaced { node, .. } => format!("the daemon of {node} is replaced"),
            Event::NodeBack { node } => format!("{node} is back"),
            Event::JobDisplaced { job, residence } => format!("{job} displaced, {residence:?}"),
            Event::JobCheckpointed { job, epoch, .. } => format!("{job} has {epoch}"),
            Event::JobNotCheckpointed { job, .. } => format!("{job} has no checkpoint"),
            Event::JobRepeats { job, work } => format!("{job} repeats {work:?}"),
            _ => return None,
        },
    })
}

/// Feeds a run the inputs of a table, each at its time, and compares what it makes of them. Returns all that.
fn story(run: &mut Run, table: &[(u64, Input, &str)]) -> Vec<Output> {
    let mut all = Vec::new();
    for (line, (at, input, expected)) in table.iter().enumerate() {
        let outputs = run.on(millis(*at), input.clone());
        let shown: Vec<String> = outputs.iter().filter_map(shown).collect();
        assert_eq!(shown.join("; "), *expected, "line {line}: {input:?}");
        all.extend(outputs);
    }
    all
}

fn report(job: u32, report: Report) -> Input {
    Input::Report(JobId(job), report)
}

fn run(set: JobSet) -> Run {
    Run::new(set, RunSettings::default()).expect("the settings are right")
}

/// Lets two jobs take turns by switches that take so many milliseconds; returns the warnings.
fn warnings_of_turns(quantum_ms: u64, switch_ms: u64) -> Vec<String> {
    let mut set = job_set(vec![job(0, 60, 0), job(1, 60, 0)], SwitchOrder::Sequential, Residency::None);
    set.scheduler.quantum = Duration::from_millis(quantum_ms);
    let mut run = run(set);
    let (mut now, mut input, mut warnings) = (0, Input::Due, Vec::new());
    for _ in 0..40 {
        let mut order = None;
        for output in run.on(millis(now), input) {
            match output {
                Output::Launch(job, _) => order = Some((job, Report::Running)),
                Output::Order(job, Order::Park) => order = Some((job, Report::Parked)),
                Output::Order(job, _) => order = Some((job, Report::Running)),
                Output::Tell(RunEvent { kind: Event::Warning { text }, .. }) => warnings.push(text),
                _ => {}
            }
        }
        (now, input) = match order {
            Some((job, report)) => (now + switch_ms / 2, Input::Report(job, report)),
            None => (run.due().expect("the turn ends").0 / 1_000_000, Input::Due),
        };
    }
    warnings
}

#[test]
fn quantum_that_is_short_for_its_switches_is_warned_of_once() {
    let [warning] = &warnings_of_turns(400, 2000)[..] else { panic!("one warning") };
    assert_eq!(
        warning,
        "the quantum of 400 ms is shorter than a switch, in which no job runs: 2.0 s (mean of 3); \
         `quantum: auto` would take about 100 s, so that switching costs 2 %"
    );
    assert_eq!(warnings_of_turns(4000, 300), [""; 0], "7 % are not worth a warning");
}

#[test]
fn jobs_that_stay_in_memory_beyond_it_are_warned_of_and_never_parked() {
    let mut set = job_set(vec![job(0, 60, 0), job(1, 60, 0)], SwitchOrder::Sequential, Residency::Planned);
    set.scheduler.park = ParkMethod::Suspend;
    let mut run = run(set);
    let outputs = run.on(millis(0), Input::Due);
    let warning = outputs.iter().find_map(|output| match output {
        Output::Tell(RunEvent { kind: Event::Warning { text }, .. }) => Some(text.as_str()),
        _ => None,
    });
    let text = "jobs are never taken out of memory (`park: suspend`); together they need 120MiB on node-0 of \
                100MiB (and too much on 1 more node): the kernel will swap";
    assert_eq!(warning, Some(text));
    story(
        &mut run,
        &[
            (10, report(0, Report::Running), "switched; turn of job-0 until 1.01s"),
            (1010, Input::Due, "suspend job-0"),
            (1020, report(0, Report::Suspended), "launch job-1"),
            (1030, report(1, Report::Running), "switched; turn of job-1 until 2.03s"),
            (2030, Input::Due, "suspend job-1"),
            (2040, report(1, Report::Suspended), "resume job-0"),
        ],
    );
}

#[test]
fn two_sets_take_turns_and_end() {
    let jobs = vec![job(0, 60, 0), job(1, 60, 0)];
    let mut run = run(job_set(jobs, SwitchOrder::Sequential, Residency::None));
    let ended = Report::Ended(AppOutcome::Succeeded);
    story(
        &mut run,
        &[
            (0, Input::Due, "submitted job-0; submitted job-1; launch job-0"),
            (10, report(0, Report::Running), "switched; turn of job-0 until 1.01s"),
            (1010, Input::Due, "park job-0"),
            (1100, report(0, Report::Parked), "launch job-1"),
            (1110, report(1, Report::Running), "switched; turn of job-1 until 2.11s"),
            (1500, report(1, ended.clone()), "job-1 ended Exit(0); restore job-0"),
            (1600, report(0, Report::Running), "switched; turn of job-0"),
            (2000, report(0, ended), "job-0 ended Exit(0); over Done"),
        ],
    );
}

/// A job has its slice before its ranks run, and until it has left.
#[test]
fn jobs_in_memory_get_slices_and_each_change_is_one_strobe() {
    let jobs = vec![job(0, 40, 0), job(1, 40, 0), job(2, 70, 5)];
    let mut set = job_set(jobs, SwitchOrder::Sequential, Residency::None);
    set.scheduler.slice = Some(Duration::from_millis(20));
    let mut run = run(set);
    let ended = Report::Ended(AppOutcome::Succeeded);
    story(
        &mut run,
        &[
            (
                0,
                Input::Due,
                "slices of job-0 | job-1; submitted job-0; submitted job-1; launch job-0; launch job-1",
            ),
            (5, Input::Due, "submitted job-2"),
            (10, report(0, Report::Running), ""),
            (10, report(1, Report::Running), "switched; turn of job-0 job-1 until 1.01s"),
            (1010, Input::Due, "slices of job-0 | job-1 | job-2; park job-0; park job-1"),
            (1100, report(0, Report::Parked), ""),
            (1110, report(1, Report::Parked), "launch job-2"),
            (1120, report(2, Report::Running), "slices of job-2; switched; turn of job-2 until 2.12s"),
            (1130, Input::Node(NodeEvent::Back { node: NodeId(1) }), "slices of job-2; node-1 is back"),
            (
                1500,
                report(2, ended),
                "slices of job-0 | job-1; job-2 ended Exit(0); restore job-0; restore job-1",
            ),
        ],
    );
}

#[test]
fn a_job_that_could_not_leave_keeps_its_turn_and_a_full_store_is_no_fault_of_its_own() {
    let jobs = vec![job(0, 60, 0), job(1, 60, 0)];
    let mut run = run(job_set(jobs, SwitchOrder::Sequential, Residency::None));
    story(
        &mut run,
        &[
            (0, Input::Due, "submitted job-0; submitted job-1; launch job-0"),
            (0, report(0, Report::Running), "switched; turn of job-0 until 1s"),
            (1000, Input::Due, "park job-0"),
            (
                1100,
                report(0, Report::StillRunning { cause: full() }),
                "misplaced job-0 running, no room, job-1 unlaunched; turn of job-0 until 2.1s",
            ),
            (2100, Input::Due, "park job-0"),
            (
                2200,
                report(0, Report::StillRunning { cause: failed() }),
                "misplaced job-0 running, job-1 unlaunched; turn of job-0 until 3.2s",
            ),
        ],
    );
}

/// A node whose ranks still compute may be silent for many turns.
#[test]
fn a_job_whose_ranks_are_ending_keeps_its_turn_and_is_not_given_up() {
    let jobs = vec![job(0, 60, 0), job(1, 60, 0)];
    let mut run = run(job_set(jobs, SwitchOrder::Sequential, Residency::None));
    let stays = || report(0, Report::StillRunning { cause: StayCause::Ending });
    let stuck = |until: &str| {
        format!("misplaced job-0 running, no room, job-1 unlaunched; turn of job-0 until {until}")
    };
    story(
        &mut run,
        &[
            (0, Input::Due, "submitted job-0; submitted job-1; launch job-0"),
            (0, report(0, Report::Running), "switched; turn of job-0 until 1s"),
            (1000, Input::Due, "park job-0"),
            (1100, stays(), &stuck("2.1s")),
            (2100, Input::Due, "park job-0"),
            (2200, stays(), &stuck("3.2s")),
            (3200, Input::Due, "park job-0"),
            (3300, stays(), &stuck("4.3s")),
            (3400, report(0, Report::Ended(AppOutcome::Succeeded)), "job-0 ended Exit(0); launch job-1"),
        ],
    );
}

#[test]
fn a_job_whose_switches_fail_three_times_is_given_up_and_the_others_go_on() {
    let jobs = vec![job(0, 60, 0), job(1, 60, 0)];
    let mut run = run(job_set(jobs, SwitchOrder::Sequential, Residency::None));
    let stays = || report(0, Report::StillRunning { cause: failed() });
    let stuck =
        |until: &str| format!("misplaced job-0 running, job-1 unlaunched; turn of job-0 until {until}");
    story(
        &mut run,
        &[
            (0, Input::Due, "submitted job-0; submitted job-1; launch job-0"),
            (0, report(0, Report::Running), "switched; turn of job-0 until 1s"),
            (1000, Input::Due, "park job-0"),
            (1100, stays(), &stuck("2.1s")),
            (2100, Input::Due, "park job-0"),
            (2200, stays(), &stuck("3.2s")),
            (3200, Input::Due, "park job-0"),
            (3300, stays(), "misplaced job-0 running, job-1 unlaunched; end job-0"),
            (
                3400,
                report(0, Report::Ended(AppOutcome::Stopped)),
                "job-0 ended Failed(\"stopped\"); launch job-1",
            ),
            (3500, report(1, Report::Running), "switched; turn of job-1"),
            (4000, report(1, Report::Ended(AppOutcome::Succeeded)), "job-1 ended Exit(0); over JobsFailed"),
        ],
    );
}

fn lost() -> Input {
    Input::Node(NodeEvent::Lost { node: NodeId(1), reason: "a test".into() })
}

fn not_back() -> Input {
    Input::Node(NodeEvent::NotBack { node: NodeId(1), reason: "a test".into() })
}

#[test]
fn a_job_waits_at_its_snapshot_for_a_lost_node_and_goes_on_when_it_is_back() {
    let set = job_set(vec![job(0, 60, 0)], SwitchOrder::Sequential, Residency::None);
    let why = "a test".to_owned();
    let back = Input::Node(NodeEvent::Back { node: NodeId(1) });
    let went_back = Report::WentBack { epoch: Epoch(1), why: why.clone() };
    story(
        &mut run(set),
        &[
            (0, Input::Due, "submitted job-0; launch job-0"),
            (100, report(0, Report::Running), "switched; turn of job-0"),
            (500, lost(), "node-1 is lost; restart node-1"),
            (600, report(0, Report::Displaced { why }), "job-0 displaced, Parked"),
            (900, back, "node-1 is back; restore job-0"),
            (950, report(0, went_back), "job-0 repeats 500ms"),
            (999, report(0, Report::Running), "switched; turn of job-0"),
        ],
    );
}

#[test]
fn a_job_without_a_snapshot_is_launched_again_on_the_nodes_that_are_left() {
    let set = job_set(vec![job(0, 40, 0)], SwitchOrder::Sequential, Residency::None);
    let all = story(
        &mut run(set),
        &[
            (0, Input::Due, "submitted job-0; launch job-0"),
            (100, report(0, Report::Running), "switched; turn of job-0"),
            (500, lost(), "node-1 is lost; restart node-1"),
            (
                600,
                report(0, Report::Unlaunched),
                "job-0 displaced, Unlaunched; job-0 repeats 500ms; launch job-0",
            ),
        ],
    );
    let Some(Output::Launch(_, spec)) = all.last() else { panic!("{all:?}") };
    assert!(spec.placement.iter().all(|node| *node == NodeId(0)), "{:?}", spec.placement);
}

#[test]
fn a_run_ends_where_only_a_node_that_stays_down_could_go_on_with_it() {
    let set = job_set(vec![job(0, 60, 0)], SwitchOrder::Sequential, Residency::None);
    let mut run = run(set);
    story(
        &mut run,
        &[
            (0, Input::Due, "submitted job-0; launch job-0"),
            (100, lost(), "node-1 is lost; restart node-1"),
            (
                100,
                report(0, Report::Unlaunched),
                "job-0 displaced, Unlaunched; job-0 repeats 0ns; misplaced job-0 unlaunched",
            ),
            (200, not_back(), ""),
        ],
    );
    for attempt in 2..6 {
        let at = run.due().expect("another attempt").since(SimTime(0)).as_millis() as u64;
        story(&mut run, &[(at, Input::Due, "restart node-1"), (at, not_back(), "")]);
        assert!(attempt < 6 && run.due().is_some());
    }
    let at = run.due().expect("the last attempt").since(SimTime(0)).as_millis() as u64;
    story(&mut run, &[(at, Input::Due, "restart node-1"), (at, not_back(), "over Aborted")]);
}

#[test]
fn an_interrupt_ends_the_run() {
    let set = || job_set(vec![job(0, 60, 0)], SwitchOrder::Sequential, Residency::None);
    story(&mut run(set()), &[(5, Input::Stop(RunOutcome::Interrupted), "over Interrupted")]);
}

#[test]
fn a_job_that_asks_for_too_much_is_refused_and_the_run_says_so() {
    let mut run = run(job_set(vec![job(0, 101, 0)], SwitchOrder::Sequential, Residency::None));
    let outputs = run.on(SimTime(0), Input::Due);
    let shown: Vec<String> = outputs.iter().filter_map(shown).collect();
    assert_eq!(shown.len(), 3, "{shown:?}");
    assert_eq!(shown[2], "over JobsFailed");
}

/// What all nodes report: so many MiB of each job, and whether running jobs are stopped.
fn samples(run: &mut Run, at: u64, jobs: &[(u32, u64)], stopped: bool) -> Vec<String> {
    let memory = |(job, mib): &(u32, u64)| coswitch_dispatcher::protocol::JobMemory {
        job: JobId(*job),
        used: Bytes(mib * MIB),
        held: Bytes(mib * MIB),
        swapped: Bytes(0),
        major_faults: 0,
    };
    let jobs: Vec<_> = jobs.iter().map(memory).collect();
    let used = jobs.iter().map(|memory| memory.used).sum();
    let memory =
        coswitch_dispatcher::protocol::MemoryUse { used, stall: None, jobs, stopped, looks: 1, peak: used };
    let node = |node| Input::Node(NodeEvent::Memory { node: NodeId(node), memory: memory.clone() });
    let outputs = (0..NODES).flat_map(|id| run.on(millis(at), node(id))).collect::<Vec<_>>();
    outputs.iter().filter_map(shown).collect()
}

/// A tenth of a second apart.
fn sample_until(run: &mut Run, from: u64, to: u64, jobs: &[(u32, u64)]) {
    for at in (from..to).step_by(100) {
        assert_eq!(samples(run, at, jobs, false), [] as [String; 0], "at {at}");
    }
}

fn allowed(node: u32, exceeded: bool) -> Input {
    Input::Node(NodeEvent::Allowed { node: NodeId(node), exceeded })
}

/// Job 1 holds 20 of 80 MiB and has been suspended; job 0, of 60, is to come into nodes of 100.
fn about_to_launch() -> Run {
    let mut set = job_set(vec![job(0, 60, 0), job(1, 80, 0)], SwitchOrder::Sequential, Residency::Planned);
    set.scheduler.quantum = Duration::from_secs(5);
    let mut run = run(set);
    story(
        &mut run,
        &[
            (0, Input::Due, "submitted job-0; submitted job-1; launch job-1"),
            (0, report(1, Report::Running), "switched; turn of job-1 until 5s"),
        ],
    );
    sample_until(&mut run, 100, 5000, &[(1, 20)]);
    story(
        &mut run,
        &[
            (5000, Input::Due, "suspend job-1"),
            // 80 and 60 exceed the node as declared: a reserve of 16 stays free.
            (
                5010,
                report(1, Report::Suspended),
                "node-0 allows 84MiB with job-0; node-1 allows 84MiB with job-0",
            ),
        ],
    );
    run
}

#[test]
fn a_job_comes_in_when_all_its_nodes_have_room() {
    let mut run = about_to_launch();
    story(
        &mut run,
        &[
            (5012, allowed(0, false), ""),
            (5013, allowed(1, false), "launch job-0"),
            (
                5020,
                report(0, Report::Running),
                "switched; turn of job-0 until 10.02s; node-0 allows 84MiB; node-1 allows 84MiB",
            ),
            (5021, allowed(0, false), ""),
            (5022, allowed(1, false), ""),
        ],
    );
    let all = samples(&mut run, 5100, &[(1, 20)], false);
    assert_eq!(all, ["node-0 allows all", "node-1 allows all"], "20 and 60 fit, for job 1 cannot grow");
    sample_until(&mut run, 5200, 10_000, &[(0, 30), (1, 20)]);
    story(
        &mut run,
        &[
            (10_020, Input::Due, "suspend job-0"),
            (10_030, report(0, Report::Suspended), "node-0 allows 84MiB; node-1 allows 84MiB; resume job-1"),
            (10_040, report(1, Report::Running), "switched; turn of job-1 until 15.04s"),
        ],
    );
    sample_until(&mut run, 10_100, 11_000, &[(0, 30), (1, 20)]);
    let stopped = samples(&mut run, 11_000, &[(0, 30), (1, 54)], true);
    assert_eq!(stopped, ["park job-0"], "it leaves, and job 1 is let go on by its daemons");
    story(&mut run, &[(11_300, report(0, Report::Parked), "switched; node-0 allows all; node-1 allows all")]);
}

#[test]
fn where_a_node_has_no_room_others_leave_before_a_job_comes_in() {
    let mut run = about_to_launch();
    story(
        &mut run,
        &[
            (5012, allowed(0, true), ""),
            (
                5013,
                allowed(1, false),
                "misplaced job-0 unlaunched, no room; node-0 allows all; node-1 allows all; park job-1",
            ),
            (5014, allowed(0, true), ""),
            (5015, allowed(1, false), ""),
            (5300, report(1, Report::Parked), "launch job-0"),
        ],
    );
}
