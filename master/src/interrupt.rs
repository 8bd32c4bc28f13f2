//! Whether the user has stopped this command, by Ctrl-C or SIGTERM, at any time since it began to watch.
//!
//! A run listens for signals only while its nodes are up. A signal before or between runs would end the
//! process in the middle of making nodes, or be lost.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use anyhow::Context;
use tokio::{
    runtime::Builder,
    signal::unix::{SignalKind, signal},
};

/// Set once by the first signal; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Watches from now on: the signals no longer end the process by themselves.
    ///
    /// # Errors
    /// Where the kernel refuses a handler or a thread.
    pub fn watch() -> anyhow::Result<Self> {
        let interrupt = Self::default();
        let runtime = Builder::new_current_thread().enable_io().build()?;
        let guard = runtime.enter();
        let listen = |kind| signal(kind).context("failed to listen for signals");
        let (mut interrupted, mut terminated) =
            (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
        drop(guard);
        let seen = interrupt.clone();
        let wait = move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = interrupted.recv() => {}
                    _ = terminated.recv() => {}
                }
            });
            seen.0.store(true, Ordering::Release);
        };
        thread::Builder::new().name("signals".into()).spawn(wait).context("failed to start a thread")?;
        Ok(interrupt)
    }

    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
