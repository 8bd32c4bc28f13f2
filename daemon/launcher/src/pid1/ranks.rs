//! Starts ranks, and reaps them and the orphans that they leave.

use std::{
    fs::{File, OpenOptions},
    io,
    os::{
        fd::AsRawFd,
        unix::{
            fs::OpenOptionsExt,
            net::UnixStream,
            process::{CommandExt, ExitStatusExt},
        },
    },
    path::Path,
    process::{Command, Stdio},
};

use coswitch_launcher::{LauncherSpec, RankSpec, protocol::ExitStatus};
use nix::{
    errno::Errno,
    fcntl::{OFlag, open},
    sys::{
        signal::{SigSet, SigmaskHow, Signal, kill, sigprocmask},
        stat::Mode,
    },
    unistd::{Pid, setsid, write},
};

use super::user::{self, Becoming};

/// Starts one rank; returns its process id and the launcher's end of its PMI socket.
pub(super) fn start(spec: &LauncherSpec, rank: &RankSpec) -> Result<(Pid, UnixStream), String> {
    let (ours, theirs) = UnixStream::pair().map_err(|error| format!("make a PMI socket: {error}"))?;
    let segment =
        OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOFOLLOW).open(&spec.segment);
    let segment = segment.map_err(|error| format!("open {}: {error}", spec.segment.display()))?;
    let (program, arguments) = spec.command.split_first().ok_or("run an empty command")?;
    let opened = open_sent(spec).map_err(|error| format!("open {program}: {error}"))?;
    let sent = opened.as_ref().map(|(_, link)| Path::new(link)).or(spec.program.as_deref());
    let mut command = Command::new(sent.unwrap_or(Path::new(program)));
    command
        .arg0(program)
        .args(arguments)
        .env_clear()
        .envs(environment(spec, rank, &theirs, &segment))
        .stdin(Stdio::null())
        .stdout(output(spec, &rank.stdout)?)
        .stderr(output(spec, &rank.stderr)?);
    let becoming = match &spec.user {
        Some(user) => {
            Some(Becoming::new(user, &spec.cwd).map_err(|error| format!("name its directory: {error}"))?)
        }
        None => {
            command.current_dir(&spec.cwd);
            None
        }
    };
    let (inherited, user_umask) = ([theirs.as_raw_fd(), segment.as_raw_fd()], spec.umask);
    let oom_score = spec.oom_score_adj.to_string();
    // SAFETY: between fork and exec the closure makes system calls alone and touches no lock and no heap. The
    // descriptors are open then, because `theirs` and `segment` live until after the spawn.
    unsafe {
        command.pre_exec(move || {
            // A rank that signals its process group must reach only itself, and the kernel's scheduler groups
            // processes by session: one with many of them may starve other programs (`kernel.rs` of the
            // daemon).
            setsid()?;
            sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
            libc::umask(user_umask);
            // A score below that of the launcher needs a capability; without it the rank has the launcher's.
            let _ = set_oom_score(oom_score.as_bytes());
            inherited.into_iter().try_for_each(|fd| match libc::fcntl(fd, libc::F_SETFD, 0) {
                -1 => Err(io::Error::last_os_error()),
                _ => Ok(()),
            })?;
            becoming.as_ref().map_or(Ok(()), Becoming::carry_out)
        });
    }
    let child =
        command.spawn().map_err(|error| format!("run {program} in {}: {error}", spec.cwd.display()))?;
    let pid = i32::try_from(child.id()).expect("a process id fits an i32");
    Ok((Pid::from_raw(pid), ours))
}

/// For this process. Makes system calls alone.
fn set_oom_score(score: &[u8]) -> io::Result<()> {
    let file = open(c"/proc/self/oom_score_adj", OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::empty())?;
    write(&file, score).map(drop).map_err(Into::into)
}

fn output(spec: &LauncherSpec, path: &Path) -> Result<File, String> {
    append_to(spec, path).map_err(|error| format!("open {}: {error}", path.display()))
}

/// Opens a file for output; only the user of the ranks may read it. If a link is at that path, this fails.
pub(super) fn append_to(spec: &LauncherSpec, path: &Path) -> io::Result<File> {
    if let Some(user) = &spec.user {
        return user::append_as(user, path);
    }
    OpenOptions::new().append(true).create(true).mode(0o600).custom_flags(libc::O_NOFOLLOW).open(path)
}

/// A program that was sent lies where only the daemon's user can get.
fn open_sent(spec: &LauncherSpec) -> io::Result<Option<(File, String)>> {
    let path = spec.user.as_ref().and(spec.program.as_deref());
    path.map(user::open_program).transpose()
}

/// The user's environment, without the variables of other launchers and with those of the driver and of PMI.
fn environment(
    spec: &LauncherSpec,
    rank: &RankSpec,
    pmi: &UnixStream,
    segment: &File,
) -> Vec<(String, String)> {
    let foreign = |name: &str| ["PMI_", "PMIX_", "COSWITCH_"].iter().any(|prefix| name.starts_with(prefix));
    let mut all: Vec<_> = spec.env.iter().filter(|(name, _)| !foreign(name)).cloned().collect();
    let mut set = |name: &str, value: String| all.push((name.into(), value));
    set("PMI_FD", pmi.as_raw_fd().to_string());
    set("PMI_RANK", rank.rank.to_string());
    set("PMI_SIZE", spec.world_size.to_string());
    set("COSWITCH_SEGMENT", segment.as_raw_fd().to_string());
    set("COSWITCH_LOCAL", rank.local.to_string());
    set("COSWITCH_RANK", rank.rank.to_string());
    // UCX, which is linked to the MPI library and not used, would otherwise install signal handlers.
    set("UCX_HANDLE_ERRORS", "none".into());
    if let Some(directory) = &spec.provider_dir {
        set("FI_PROVIDER", "coswitch".into());
        set("FI_PROVIDER_PATH", directory.display().to_string());
        // Newer MPICH prefers UCX.
        set("MPIR_CVAR_CH4_NETMOD", "ofi".into());
    }
    all
}

/// Reaps the children that have ended, orphans of ranks among them.
pub(super) fn reap() -> Vec<(Pid, ExitStatus)> {
    let mut ended = Vec::new();
    loop {
        let mut status = 0;
        // SAFETY: the status is written to a local. (nix rejects the statuses of real-time signals.)
        let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
        if pid > 0 {
            ended.push((Pid::from_raw(pid), exit_status(status)));
        } else if pid == 0 || Errno::last() != Errno::EINTR {
            return ended;
        }
    }
}

/// The status of an ended process; `waitpid` reports no stops here.
fn exit_status(raw: i32) -> ExitStatus {
    let status = std::process::ExitStatus::from_raw(raw);
    match status.signal() {
        Some(signal) => ExitStatus::Signaled(signal),
        None => ExitStatus::Exited(status.code().unwrap_or_default()),
    }
}

/// Kills all other processes of the namespace.
pub(super) fn end_all() {
    // An error means that no process is left.
    let _ = kill(Pid::from_raw(-1), Signal::SIGKILL);
}
