//! Limits that the kernel sets a daemon, and that its ranks do not inherit.
//!
//! A daemon has descriptors and threads for all jobs of its node, and nothing replaces it: it raises its
//! limit of descriptors, and asks the kernel to kill others first where memory is short. Programs are used
//! to the usual limits (a low one of descriptors makes `select` work), so the launcher goes back to them
//! before it starts a rank.

use std::{env, fs};

use nix::{
    errno::Errno,
    sys::resource::{Resource, getrlimit, setrlimit},
};

/// In the environment of a daemon and what it executes: the limit of descriptors that it began with.
const DESCRIPTORS: &str = "COSWITCH_DESCRIPTORS";
const SCORE: &str = "/proc/self/oom_score_adj";
/// Nearly never killed; -1000 would be inherited by programs that must not have it.
const KILLED_LAST: &str = "-900";
const USUAL: &str = "0";

/// For a daemon, when it starts.
///
/// # Errors
/// Where the kernel refuses to raise the limit of descriptors. Where it does not let the daemon be killed
/// last, it is killed as any other process.
///
/// # Safety
/// There is no other thread: it changes the environment.
pub unsafe fn raise() -> Result<(), Errno> {
    // It takes the right to use more than the user has.
    let _ = fs::write(SCORE, KILLED_LAST);
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    // A daemon that another one has executed has the variable already.
    if before().is_none() {
        // SAFETY: the caller guarantees that no other thread runs, so none reads the environment.
        unsafe { env::set_var(DESCRIPTORS, soft.to_string()) };
    }
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
}

/// For a launcher, when it starts.
///
/// # Errors
/// Where the kernel refuses; to go back it takes no right.
pub fn lower() -> Result<(), Errno> {
    let _ = fs::write(SCORE, USUAL);
    let Some(before) = before() else { return Ok(()) };
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, before.min(hard), hard)
}

fn before() -> Option<u64> {
    env::var(DESCRIPTORS).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    const CHILD: &str = "COSWITCH_TEST_LIMITS";
    const SOFT: u64 = 200;

    fn soft_and_hard() -> (u64, u64) {
        getrlimit(Resource::RLIMIT_NOFILE).unwrap()
    }

    #[test]
    fn a_daemon_has_what_it_may_and_its_launcher_what_is_usual() {
        if env::var_os(CHILD).is_none() {
            // In another process: limits and environment are those of all tests in this one.
            let mut child = Command::new(env::current_exe().unwrap());
            child.args(["--exact", "limits::tests::a_daemon_has_what_it_may_and_its_launcher_what_is_usual"]);
            assert!(child.env(CHILD, "1").status().unwrap().success());
            return;
        }
        let (_, hard) = soft_and_hard();
        setrlimit(Resource::RLIMIT_NOFILE, SOFT, hard).unwrap();
        for _daemon_and_its_successor in 0..2 {
            // SAFETY: the other thread of this process waits for this test.
            unsafe { raise() }.unwrap();
            assert_eq!(soft_and_hard(), (hard, hard));
        }
        lower().unwrap();
        assert_eq!(soft_and_hard(), (SOFT, hard));
        assert_eq!(fs::read_to_string(SCORE).unwrap().trim(), USUAL);
    }
}
