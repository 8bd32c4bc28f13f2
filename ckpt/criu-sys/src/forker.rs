//! Forking thread: lives as long as the process and forks every child that must outlive its caller.
//!
//! `PR_SET_PDEATHSIG` fires when the *thread* that forked a child ends, not when its process does. A launcher
//! that asks to die with its daemon would die with the worker thread that started it, and a restored root is
//! a child of the thread that forked CRIU. So both are started here. The thread keeps the namespaces of its
//! first caller: enter them before the first use.

use std::io;
use std::process::{Child, Command};
use std::sync::{OnceLock, mpsc};

type Work = Box<dyn FnOnce() + Send>;

/// Starts `command` from the forking thread. The caller has to reap the child.
pub fn spawn(mut command: Command) -> io::Result<Child> {
    run(move || command.spawn())
}

/// Runs `work`, which forks and must be short, on the forking thread, and waits for it.
///
/// # Panics
/// If `work` panics.
pub fn run<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    static FORKER: OnceLock<mpsc::Sender<Work>> = OnceLock::new();
    let (reply, answer) = mpsc::channel();
    let work = Box::new(move || drop(reply.send(work())));
    FORKER.get_or_init(start).send(work).expect("the forker lives as long as the process");
    answer.recv().expect("work on the forker does not panic")
}

fn start() -> mpsc::Sender<Work> {
    let (sender, queue) = mpsc::channel::<Work>();
    let serve = move || queue.into_iter().for_each(|work| work());
    std::thread::Builder::new().name("forker".to_owned()).spawn(serve).expect("a thread can be started");
    sender
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_thread_forks_for_all_threads() {
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
    fn the_caller_gets_the_error_about_a_program_that_does_not_exist() {
        let error = spawn(Command::new("/nonexistent/program")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
