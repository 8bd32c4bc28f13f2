//! Launch of the ranks: cgroup, segment, launcher.

use std::{
    io::{Read, Seek, SeekFrom},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use coswitch_ckpt::{JobUser, OutputFile, SegmentFile, forker, preflight, private, theirs};
use coswitch_launcher::{LauncherSpec, RankSpec, RankUser, StartError};
use coswitch_policies::{Bytes, NodeId};
use coswitch_ring::{Segment, SegmentSpec, WaitPolicy};

use super::{
    hearing::Hearing,
    part::{Part, Resources, State, blocking},
};
use crate::{
    cgroup::JobCgroup,
    children::Child,
    node::remove_tree,
    plane::Command,
    protocol::{Failure, LaunchRequest, Wait},
    running::Before,
};

/// The name of the segment in the job's directory of shared memory.
pub(crate) const SEGMENT: &str = "segment";
/// Many nodes of one loaded machine start their launchers at the same time.
const START_LIMIT: Duration = Duration::from_secs(40);
/// Processes and threads that the ranks of an ordinary user may have on a node: these, and so many for each.
const PROCESSES: u32 = 256;
const PROCESSES_OF_RANK: u32 = 512;
/// Reported tail of a failed rank's output.
const LAST_OUTPUT_BYTES: u64 = 2048;

impl Part {
    pub(super) async fn launch(&mut self, launch: LaunchRequest) -> Result<(), Failure> {
        if !matches!(self.state, State::Absent) {
            return Err(Failure::alive("it has been launched already"));
        }
        let sent = self.sent_program(launch.program.as_ref()).await.map_err(Failure::dead)?;
        let segment = self.make_segment(&launch).map_err(Failure::dead)?;
        let file = SegmentFile::at(segment.path()).map_err(Failure::dead)?;
        let cgroup = self.node.cgroup.job(&self.job.to_string()).map_err(Failure::dead)?;
        let ranks_here = local_ranks(&launch.placement, self.node.config.node).count();
        if launch.user.is_some() {
            let most = PROCESSES + PROCESSES_OF_RANK * u32::try_from(ranks_here).map_err(Failure::dead)?;
            cgroup.limit_processes(most).map_err(Failure::dead)?;
        }
        let outputs = earlier_outputs(&launch, self.node.config.node);
        let (dir, user) = (launch.output.clone(), launch.user.clone());
        blocking(move || prepare_outputs(&dir, &outputs, user.as_ref())).await.map_err(Failure::dead)?;
        self.node.plane.tell(Command::AddApp(self.job, Arc::clone(&segment), launch.placement.clone()));
        self.node.plane.tell(Command::SetLife(self.job, launch.life));
        self.told.life = launch.life;
        let linked = self.unless_released(self.node.ensure_links(&launch.placement)).await;
        let spec = LauncherSpec { program: sent, ..self.spec(&launch, &cgroup) };
        self.resources = Some(Resources { cgroup, segment, file, launch });
        linked?.map_err(Failure::dead)?;
        let program = self.node.config.launcher.clone();
        let started =
            blocking(move || forker::run(move || coswitch_launcher::start(&program, &spec, START_LIMIT)));
        self.hearing = Hearing::from_launch();
        let pid = started.await.map_err(|error: StartError| Failure::dead(error))?;
        self.state = State::Running { root: Child::adopt(pid).map_err(Failure::dead)? };
        self.let_run(Before::Runs).map_err(Failure::dead)
    }

    pub(super) fn make_segment(&self, launch: &LaunchRequest) -> anyhow::Result<Arc<Segment>> {
        let own = self.node.config.node;
        let here = local_ranks(&launch.placement, own);
        let dir = self.node.config.shm(self.job);
        private::ensure_dir(&dir)?;
        let mut spec = SegmentSpec::new(u32::try_from(launch.placement.len())?, here.collect());
        spec.wait = match launch.wait {
            Wait::Spin => WaitPolicy::Spin,
            Wait::Yield => WaitPolicy::Yield,
            Wait::Block => WaitPolicy::Block,
            Wait::SpinBlock => WaitPolicy::SpinBlock,
        };
        Ok(Arc::new(Segment::create(dir.join(SEGMENT), &spec)?))
    }

    /// For a part without processes, of an earlier program: nobody has the file mapped.
    pub(super) fn make_segment_anew(&self, launch: &LaunchRequest) -> anyhow::Result<Arc<Segment>> {
        remove_tree(&self.node.config.shm(self.job))?;
        self.make_segment(launch)
    }

    fn spec(&self, launch: &LaunchRequest, cgroup: &JobCgroup) -> LauncherSpec {
        let config = &self.node.config;
        let here = local_ranks(&launch.placement, config.node);
        let ranks = (0..).zip(here).map(|(local, rank)| RankSpec {
            rank,
            local,
            stdout: output(&launch.output, rank, "out"),
            stderr: output(&launch.output, rank, "err"),
        });
        LauncherSpec {
            application: format!("{}-{}", config.run, self.job),
            daemon_pid: std::process::id(),
            outlives: config.standing,
            cgroup_procs: cgroup.procs(),
            segment: config.shm(self.job).join(SEGMENT),
            provider_dir: Some(config.provider.clone()),
            world_size: u32::try_from(launch.placement.len()).expect("checked when the segment was made"),
            ranks: ranks.collect(),
            command: launch.command.clone(),
            program: None,
            env: launch.env.clone(),
            cwd: launch.cwd.clone(),
            umask: launch.umask,
            user: launch.user.clone().map(|JobUser { uid, gid, groups }| RankUser { uid, gid, groups }),
            oom_score_adj: oom_score_adj(launch.memory, config.memory.unwrap_or_default()),
            log: launch.output.join(format!("launcher-{}.log", config.node)),
        }
    }
}

/// Has the kernel choose the process that takes most above what it was said to take, where a node's memory is
/// out: it compares sizes, each with a part of the node's memory added, in thousandths.
/// Where nothing is said of a process, its size alone counts.
fn oom_score_adj(said: Bytes, of_node: Bytes) -> i32 {
    let share = said.0.saturating_mul(1000).checked_div(of_node.0).filter(|_| said > Bytes(0));
    share.map_or(0, |share| 1000 - i32::try_from(share).unwrap_or(1000).min(1000))
}

/// The ranks of an application on node `own`.
pub(super) fn local_ranks(placement: &[NodeId], own: NodeId) -> impl Iterator<Item = u32> {
    (0..).zip(placement).filter(move |(_, node)| **node == own).map(|(rank, _)| rank)
}

/// Makes the directory of the ranks' output, and sets aside what is there.
fn prepare_outputs(dir: &Path, outputs: &[OutputFile], user: Option<&JobUser>) -> anyhow::Result<()> {
    match user {
        Some(user) => {
            theirs::ensure_dir(dir, user).with_context(|| format!("failed to make {}", dir.display()))?
        }
        None => private::ensure_dir(dir)?,
    }
    preflight::set_aside_foreign_output(outputs, user)?;
    Ok(())
}

/// What the ranks here have written in an earlier life of the application, which begins again.
fn earlier_outputs(launch: &LaunchRequest, own: NodeId) -> Vec<OutputFile> {
    let ranks = local_ranks(&launch.placement, own);
    let files = ranks.flat_map(|rank| ["out", "err"].map(|kind| output(&launch.output, rank, kind)));
    let files = files.filter(|file| file.exists());
    files.map(|path| OutputFile { path, bytes: 0, inode: None }).collect()
}

/// The file of a rank's output; `kind` is `out` or `err`.
pub(super) fn output(dir: &Path, rank: u32, kind: &str) -> PathBuf {
    dir.join(format!("rank-{rank}.{kind}"))
}

/// The end of a rank's standard error or, where that is empty, of its standard output.
pub(super) fn last_output(dir: &Path, rank: u32, user: Option<&JobUser>) -> String {
    let tails = ["err", "out"].into_iter().filter_map(|kind| tail(&output(dir, rank, kind), user).ok());
    tails.map(|text| text.trim().to_string()).find(|text| !text.is_empty()).unwrap_or_default()
}

fn tail(path: &Path, user: Option<&JobUser>) -> std::io::Result<String> {
    let mut file = theirs::open_to_read(path, user)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LAST_OUTPUT_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(LAST_OUTPUT_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn who_exceeds_most_what_was_said_is_chosen_where_memory_is_out() {
        let node = Bytes::mib(1000);
        let badness = |said, takes| takes + oom_score_adj(Bytes::mib(said), node);
        assert!(badness(60, 400) > badness(900, 590), "a small one that takes too much, before a large one");
        assert!(badness(900, 950) > badness(60, 60));
        assert_eq!(oom_score_adj(Bytes::mib(2000), node), 0, "more than the node has");
        assert_eq!(oom_score_adj(Bytes(1), node), 1000, "next to nothing is said, which is not nothing");
        assert_eq!((oom_score_adj(Bytes(0), node), oom_score_adj(node, Bytes(0))), (0, 0));
    }

    #[test]
    fn the_last_output_of_a_rank_is_from_its_stderr_or_else_its_stdout() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(last_output(dir.path(), 0, None), "");
        fs::write(output(dir.path(), 0, "err"), "\n").unwrap();
        fs::write(output(dir.path(), 0, "out"), format!("{}the end\n", "x".repeat(5000))).unwrap();
        let text = last_output(dir.path(), 0, None);
        assert!(text.ends_with("xthe end") && text.len() < 2100);
        fs::write(output(dir.path(), 0, "err"), "broken\n").unwrap();
        assert_eq!(last_output(dir.path(), 0, None), "broken");
        fs::remove_file(output(dir.path(), 0, "err")).unwrap();
        nix::unistd::mkfifo(&output(dir.path(), 0, "err"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(last_output(dir.path(), 0, None).ends_with("xthe end"), "a FIFO is not waited for");
        std::os::unix::fs::symlink("/etc/passwd", output(dir.path(), 1, "out")).unwrap();
        assert_eq!(last_output(dir.path(), 1, None), "");
    }
}
