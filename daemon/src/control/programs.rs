//! The control loop's side of programs that are sent: takes fragments out of the global memory, and says
//! there how many the application has written.

use coswitch_policies::{JobId, launching::Receiving};

use super::Control;
use crate::{
    app::{Note, Written},
    protocol::ReceiveRequest,
};

/// The program that comes; a master sends one at a time.
pub(super) struct Program {
    job: JobId,
    life: u32,
    receiving: Receiving,
}

impl Control {
    /// A program is announced. One that was on its way was given up.
    pub(super) fn begin_receiving(&mut self, job: JobId, request: &ReceiveRequest) {
        let receiving = Receiving::begin(request.program.bytes, &mut self.global);
        self.program = Some(Program { job, life: request.life, receiving });
    }

    /// The application is going to be removed.
    pub(super) fn end_receiving(&mut self, job: JobId) {
        if self.program.take_if(|program| program.job == job).is_some() {
            Receiving::clear(&mut self.global);
        }
    }

    /// After each operation on the global memory.
    pub(super) fn take_fragments(&mut self) {
        let Some(Program { job, receiving, .. }) = &mut self.program else { return };
        while let Some(bytes) = receiving.take(&mut self.global) {
            if let Some(app) = self.apps.get(job) {
                app.handle.note(Note::Fragment(bytes, self.written.clone()));
            }
        }
    }

    pub(super) fn on_written(&mut self, Written { job, life }: Written) {
        if let Some(program) = &mut self.program
            && (program.job, program.life) == (job, life)
        {
            program.receiving.on_written(&mut self.global);
        }
    }
}
