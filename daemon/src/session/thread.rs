//! The thread of the control sessions: heartbeats go on whatever the rest of the process waits for.

use std::{future::Future, io, thread};

use tokio::{
    runtime::{Builder, Handle},
    sync::mpsc,
    task::JoinHandle,
};

use crate::processors::{TimeSlice, set_time_slice};

/// Handle of the thread, which ends when the last handle and the last task have gone.
#[derive(Clone, Debug)]
pub struct SessionThread {
    runtime: Handle,
    /// Its last copy keeps the thread alive.
    in_use: mpsc::Sender<()>,
}

impl SessionThread {
    /// Starts the thread, in the network namespace of the calling thread.
    ///
    /// # Errors
    /// Where the kernel refuses a thread or its event queue.
    pub fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (in_use, mut unused) = mpsc::channel(1);
        let handle = Self { runtime: runtime.handle().clone(), in_use };
        thread::Builder::new().name("sessions".into()).spawn(move || {
            // A heartbeat does not wait for the turn of a thread that computes.
            set_time_slice(TimeSlice::Short);
            runtime.block_on(unused.recv());
        })?;
        Ok(handle)
    }

    /// Runs `task` on the thread.
    pub fn spawn<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        let in_use = self.in_use.clone();
        self.runtime.spawn(async move {
            let result = task.await;
            drop(in_use);
            result
        })
    }

    /// Runs `task` on the thread and waits for its result.
    ///
    /// # Panics
    /// Where the task panics.
    pub async fn run<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> T {
        self.spawn(task).await.expect("a task of a session does not panic")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_task_goes_on_while_its_caller_is_blocked() {
        let sessions = SessionThread::start().unwrap();
        let (ticks, counted) = std::sync::mpsc::channel();
        sessions.spawn(async move {
            for tick in 0..3 {
                tokio::time::sleep(Duration::from_millis(5)).await;
                let _ = ticks.send(tick);
            }
        });
        // The last handle: the thread waits for the task.
        drop(sessions);
        assert_eq!(counted.iter().collect::<Vec<_>>(), [0, 1, 2]);
    }
}
