//! Forking thread: lives as long as the process and forks every child that must outlive its caller.
//!
//! `PR_SET_PDEATHSIG` fires when the *thread* that forked a child ends, not when its process does. A launcher
//! that asks to die with its daemon would die with the worker thread that started it, and a restored root is
//! a child of the thread that forked CRIU. So both are started here. The thread keeps the namespaces of its
//! first caller: enter them before the first use.
//!
//! A process that executes another program keeps the children of the thread that does so; those of its other
//! threads are left by their parent. So a daemon forks on its main thread ([`lead`]), which executes its
//! successor.

use std::io;
use std::process::{Child, Command};
use std::sync::{OnceLock, mpsc};
use std::thread;

/// `None`: the thread that [`lead`] runs beside the forking one has ended.
type Work = Option<Box<dyn FnOnce() + Send>>;

static FORKER: OnceLock<mpsc::Sender<Work>> = OnceLock::new();

/// Starts `command` from the forking thread. The caller has to reap the child.
pub fn spawn(mut command: Command) -> io::Result<Child> {
    run(move || command.spawn())
}

/// Runs `work`, which forks and must be short, on the forking thread, and waits for it.
///
/// # Panics
/// If `work` panics.
pub fn run<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (reply, answer) = mpsc::channel();
    let work: Work = Some(Box::new(move || drop(reply.send(work()))));
    let forker = FORKER.get_or_init(start);
    if forker.send(work).is_err() {
        // The main thread forks no more: this process is about to end, or to execute another program.
        loop {
            thread::park();
        }
    }
    answer.recv().expect("work on the forker does not panic")
}

/// Makes the calling thread the forking one while `work` runs on a thread of its own, and returns its result.
/// Call it once, before any other use of this module. Work that asks for a fork afterwards waits for ever.
///
/// # Panics
/// If another thread forks already, or `work` panics.
pub fn lead<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let (sender, queue) = mpsc::channel();
    FORKER.set(sender.clone()).expect("no thread forks yet");
    thread::scope(|scope| {
        let beside = scope.spawn(move || {
            let ended = Ended(sender);
            let result = work();
            drop(ended);
            result
        });
        queue.into_iter().map_while(|work| work).for_each(|work| work());
        beside.join().expect("the work beside the forking thread does not panic")
    })
}

/// Ends the loop of the forking thread when it is dropped, also by a panic.
struct Ended(mpsc::Sender<Work>);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.send(None);
    }
}

fn start() -> mpsc::Sender<Work> {
    let (sender, queue) = mpsc::channel::<Work>();
    let serve = move || queue.into_iter().flatten().for_each(|work| work());
    thread::Builder::new().name("forker".to_owned()).spawn(serve).expect("a thread can be started");
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
