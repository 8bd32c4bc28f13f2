//! A soak: users bring jobs to a cluster that stays, and its daemons and masters are killed at random. Every
//! job is right, and nothing grows. In CI it takes a minute; `cargo xtask soak --live --minutes 1440` takes a
//! day.

use std::{
    fmt, fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use coswitch_tests::{
    cluster::STEP_LIMIT,
    master::Master,
    seed::{Seed, seed, span},
    serving::{HEAT, accepted, check_right, end, serve, submit, wait_served},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// Two of three jobs do not fit together.
const CLUSTER: &str = r#"
cluster: {nodes: 2, memory: 150MiB, arena: 32MiB, copies: 1, store: "{store}"}
scheduler: {policy: gang, quantum: 400ms, residency: none}
"#;
const NODES: usize = 2;
const LONGEST_CALM: Duration = Duration::from_secs(3);
/// What a master keeps of each job that has ended, and more than that.
const PER_JOB: u64 = 4 << 10;

/// What a cluster without jobs has of everything.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    processes: u64,
    threads: u64,
    descriptors: u64,
    /// Resident, in bytes.
    memory: u64,
    cgroups: u64,
    mounts: u64,
    /// Files in `/dev/shm`, in the stores and in `/run`.
    files: u64,
}

impl Counts {
    fn of(master: &Master, run: &str) -> Self {
        let daemons = master.processes("coswitchd");
        let processes: Vec<u32> = daemons.into_iter().chain([master.pid()]).collect();
        let all =
            |what: &dyn Fn(&str) -> u64| processes.iter().map(|pid| what(&format!("/proc/{pid}"))).sum();
        let entries = |dir: String| fs::read_dir(dir).map_or(0, |entries| entries.count() as u64);
        let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
        let places = [Path::new("/dev/shm"), Path::new("/run/coswitch"), &master.store()]
            .map(|place| below(place, run));
        Self {
            processes: processes.len() as u64,
            threads: all(&|process| entries(format!("{process}/task"))),
            descriptors: all(&|process| entries(format!("{process}/fd"))),
            memory: all(&resident),
            cgroups: below(Path::new("/sys/fs/cgroup"), run),
            mounts: mounts.lines().filter(|line| line.contains(run)).count() as u64,
            files: places.into_iter().sum(),
        }
    }

    /// What of it is more than before, apart from what a few idle threads and connections come and go with.
    fn grown(&self, before: &Self, jobs: u64) -> Vec<String> {
        let of =
            |name: &str, now: u64, limit: u64| (now > limit).then(|| format!("{name}: {now} of {limit}"));
        let memory = before.memory + before.memory / 2 + (8 << 20) + jobs * PER_JOB;
        let all = [
            of("processes", self.processes, before.processes),
            of("threads", self.threads, before.threads + 6),
            of("descriptors", self.descriptors, before.descriptors + 8),
            of("memory", self.memory, memory),
            of("cgroups", self.cgroups, before.cgroups),
            of("mounts", self.mounts, before.mounts),
            of("files", self.files, before.files),
        ];
        all.into_iter().flatten().collect()
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { processes, threads, descriptors, memory, cgroups, mounts, files } = self;
        let memory = memory >> 20;
        write!(
            out,
            "{processes} processes, {threads} threads, {descriptors} descriptors, {memory} MiB, {cgroups} \
             cgroups, {mounts} mounts, {files} files"
        )
    }
}

fn resident(process: &str) -> u64 {
    let status = fs::read_to_string(format!("{process}/status")).unwrap_or_default();
    let kib =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse().ok());
    kib.map_or(0, |kib: u64| kib << 10)
}

/// Entries below a directory whose paths have the run's name.
fn below(dir: &Path, run: &str) -> u64 {
    let count = |entry: fs::DirEntry| {
        let path = entry.path();
        let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
        u64::from(path.to_string_lossy().contains(run)) + if is_dir { below(&path, run) } else { 0 }
    };
    fs::read_dir(dir).into_iter().flatten().flatten().map(count).sum()
}

/// The run's name, which is in those of its stores.
fn name(master: &Master) -> String {
    let stores = fs::read_dir(master.store()).expect("a directory").flatten();
    let names = stores.map(|store| store.file_name().to_string_lossy().into_owned());
    let name =
        names.filter_map(|name| Some(name.strip_prefix("coswitch-")?.rsplit_once("-n")?.0.to_owned())).next();
    name.expect("a store of a node")
}

fn kill_some(master: &mut Master, seed: &mut Seed) -> &'static str {
    let daemons = master.processes("coswitchd");
    let end = |pid: &u32| {
        // It may have ended meanwhile.
        let _ = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
    };
    match seed.between(0, 3) {
        0 => {
            daemons.first().into_iter().for_each(end);
            "a daemon"
        }
        1 => {
            daemons.iter().for_each(end);
            "all daemons"
        }
        2 => {
            master.kill();
            master.start_next();
            wait_served(master);
            "the master"
        }
        _ => {
            master.kill();
            daemons.last().into_iter().for_each(end);
            master.start_next();
            wait_served(master);
            "the master and a daemon"
        }
    }
}

#[test]
fn every_job_is_right_and_nothing_grows_whatever_is_killed() {
    let seconds =
        std::env::var("COSWITCH_SOAK_LIVE").map_or(40, |text| text.parse().expect("a number of seconds"));
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut seed = seed();
    let mut master = serve(CLUSTER);
    let run = name(&master);
    let (mut before, mut jobs, mut kills) = (None, 0, 0);
    for round in 1.. {
        let names = accepted(&submit(&master, &["--array", "1-3"], HEAT));
        for _ in 0..seed.between(1, 3) {
            thread::sleep(span(&mut seed, LONGEST_CALM));
            let killed = kill_some(&mut master, &mut seed);
            kills += 1;
            eprintln!("round {round}: {killed}");
        }
        let waited = master.user(&["wait"]);
        assert_eq!(waited.code, Some(0), "{waited:?}");
        names.iter().for_each(|name| check_right(&master, name));
        jobs += names.len() as u64;
        master.wait_until("all daemons", STEP_LIMIT, |master| master.processes("coswitchd").len() == NODES);
        let began = Instant::now();
        let counts = loop {
            let counts = Counts::of(&master, &run);
            let grown = before.map_or(Vec::new(), |before| counts.grown(&before, jobs));
            if grown.is_empty() && (before.is_some() || began.elapsed() > LONGEST_CALM) {
                break counts;
            }
            assert!(
                began.elapsed() < STEP_LIMIT,
                "after {jobs} jobs and {kills} kills have grown: {grown:?}"
            );
            thread::sleep(Duration::from_millis(500));
        };
        eprintln!("round {round}: {jobs} jobs, {kills} kills, {counts}");
        // The first round is that of everything that is made once.
        if before.is_none() {
            before = Some(counts);
        }
        if Instant::now() > until {
            break;
        }
    }
    end(master);
}
