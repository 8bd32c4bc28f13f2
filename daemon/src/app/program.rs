//! A program that comes to this node for the launch that follows: its fragments, in order, into a file of the
//! application.

use std::path::PathBuf;

use anyhow::Context;
use coswitch_ckpt::{ProgramError, ProgramWriter};
use coswitch_policies::{JobId, primitives::SharedBytes};
use tokio::sync::mpsc::UnboundedSender;

use super::part::{Part, State, blocking};
use crate::protocol::{Failure, ReceiveRequest, SentProgram, Step};

/// A fragment is written; of the last one: the program is in its place.
#[derive(Clone, Copy, Debug)]
pub struct Written {
    pub(crate) job: JobId,
    pub(crate) life: u32,
}

/// A program of which not all has come.
pub(super) struct Incoming {
    writer: ProgramWriter,
    life: u32,
}

impl Part {
    pub(super) async fn receive(&mut self, request: ReceiveRequest) {
        if !matches!(self.state, State::Absent) {
            return self.program_failed(&"it has been launched already");
        }
        let ReceiveRequest { program: SentProgram { name, bytes, checksum }, life, .. } = request;
        let (store, job) = (self.node.store.clone(), self.job.to_string());
        match blocking(move || store.begin_program(&job, &name, bytes, checksum)).await {
            Ok(writer) => self.incoming = Some(Incoming { writer, life }),
            Err(error) => self.program_failed(&error),
        }
    }

    pub(super) async fn on_fragment(&mut self, bytes: SharedBytes, written: &UnboundedSender<Written>) {
        // It has failed, and the master hears of it.
        let Some(Incoming { writer, life }) = self.incoming.take() else { return };
        match blocking(move || append(writer, &bytes)).await {
            Ok(unfinished) => {
                self.incoming = unfinished.map(|writer| Incoming { writer, life });
                let _ = written.send(Written { job: self.job, life });
            }
            Err(error) => self.program_failed(&error),
        }
    }

    fn program_failed(&self, why: &dyn ToString) {
        let reason = format!("its program could not be kept: {}", why.to_string());
        self.answer(Step::Launch, Err(Failure::dead(reason)));
    }

    /// The file that the ranks execute in place of that of their command.
    pub(super) async fn sent_program(&self, sent: Option<&SentProgram>) -> anyhow::Result<Option<PathBuf>> {
        if sent.is_none() {
            return Ok(None);
        }
        let (store, job) = (self.node.store.clone(), self.job.to_string());
        let found = blocking(move || store.program(&job)).await?;
        found.context("its program has not come, or is gone").map(Some)
    }
}

/// Returns the writer where more is to come.
fn append(mut writer: ProgramWriter, bytes: &[u8]) -> Result<Option<ProgramWriter>, ProgramError> {
    writer.append(bytes)?;
    match writer.is_complete() {
        true => writer.finish().map(|_| None),
        false => Ok(Some(writer)),
    }
}
