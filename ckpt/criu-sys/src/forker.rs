//! One thread that lives as long as the process and forks every child that must outlive its caller.
//!
//! `PR_SET_PDEATHSIG` fires when the *thread* that forked a child ends, not when its process does. A launcher
//! that asks to die with its daemon would die with whichever worker thread happened to start it, and a restored
//! root is a child of the thread that forked CRIU. So both are started here. The thread keeps the namespaces
//! of its first caller: enter them before the first use.

use std::io;
use std::process::{Child, Command};
use std::sync::{OnceLock, mpsc};

struct Job {
    command: Command,
    reply: mpsc::Sender<io::Result<Child>>,
}

/// Starts `command` from the long-lived thread. The child belongs to the caller, who has to reap it.
pub fn spawn(command: Command) -> io::Result<Child> {
    static FORKER: OnceLock<mpsc::Sender<Job>> = OnceLock::new();
    let forker = FORKER.get_or_init(start);
    let (reply, answer) = mpsc::channel();
    forker.send(Job { command, reply }).map_err(|_| gone())?;
    answer.recv().map_err(|_| gone())?
}

fn start() -> mpsc::Sender<Job> {
    let (jobs, queue) = mpsc::channel::<Job>();
    let serve = move || {
        for Job { mut command, reply } in queue {
            // A caller that has gone takes its child with it: nobody else would reap it.
            if let Err(mpsc::SendError(Ok(mut orphan))) = reply.send(command.spawn()) {
                orphan.kill().ok();
                orphan.wait().ok();
            }
        }
    };
    std::thread::Builder::new().name("forker".to_owned()).spawn(serve).expect("a thread can be started");
    jobs
}

fn gone() -> io::Error {
    io::Error::other("the forking thread has ended")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_forked_by_the_same_thread_whoever_asks() {
        let parent_thread = || {
            let mut child = spawn(Command::new("true")).unwrap();
            assert!(child.wait().unwrap().success());
            std::fs::read_dir("/proc/self/task")
                .unwrap()
                .filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).ok())
                .filter(|name| name.trim() == "forker")
                .count()
        };
        let seen: Vec<usize> = (0..4).map(|_| std::thread::spawn(parent_thread).join().unwrap()).collect();
        assert_eq!(seen, [1, 1, 1, 1]);
    }

    #[test]
    fn a_program_that_does_not_exist_is_an_error_of_the_caller() {
        let error = spawn(Command::new("/nonexistent/program")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
