//! Loop of an application's task: requests, events of the data plane, the end of the launcher.

use std::{sync::atomic::Ordering, time::Duration};

use coswitch_launcher::protocol::LauncherCommand;
use coswitch_policies::Epoch;
use tokio::{
    sync::mpsc::UnboundedReceiver,
    time::{Instant, sleep_until},
};
use tracing::warn;

use super::{
    part::{Note, Part},
    survivor::begins_step,
};
use crate::{
    plane::{AppPlaneEvent, Command},
    protocol::{AppEvent, AppRequest, Failure, Park, Step},
};

impl Part {
    pub(super) async fn run(mut self, mut inbox: UnboundedReceiver<Note>) {
        loop {
            let ends_by = self.ends_by;
            let note = match self.state.root() {
                Some(root) => tokio::select! {
                    note = inbox.recv() => note,
                    () = sleep_until(ends_by.unwrap_or_else(Instant::now)), if ends_by.is_some() => {
                        self.on_overdue();
                        continue;
                    }
                    status = root.ended() => {
                        self.on_root_ended(status).await;
                        self.keep_record().await;
                        continue;
                    }
                },
                None => inbox.recv().await,
            };
            if note.as_ref().is_none_or(begins_step) {
                self.forget_record().await;
            }
            // The cut that it begins follows at once.
            let rests = !matches!(note, Some(Note::Request(AppRequest::Cut(_))));
            match note {
                // A release follows in the queue and would undo the request at once.
                Some(Note::Request(_)) if self.is_released.load(Ordering::Relaxed) => {}
                Some(Note::Release) | None => break self.release().await,
                Some(Note::Leave) => break self.leave(&mut inbox).await,
                Some(Note::LeaveSealed) => break self.leave_sealed(&mut inbox).await,
                Some(Note::HandOver(reply)) => {
                    let _ = reply.send(self.hand_over().await);
                }
                Some(Note::Forget) => break,
                Some(Note::Request(request)) => self.on_request(request).await,
                Some(Note::Fragment(bytes, written)) => self.on_fragment(bytes, &written).await,
                Some(Note::Plane(event)) => self.on_plane(event).await,
                Some(Note::StandStill) => self.stand_still().await,
                Some(Note::GoOn) => self.go_on(),
                Some(Note::Sample) => self.on_sample().await,
                Some(Note::Copied(event)) => self.tell(event),
                Some(Note::Sealed(epoch, sealed)) => self.on_sealed(epoch, sealed).await,
            }
            if rests {
                self.keep_record().await;
            }
        }
    }

    async fn on_request(&mut self, request: AppRequest) {
        let (step, result) = match request {
            AppRequest::Cut(epoch) => {
                self.told.on_cut(epoch);
                return self.node.plane.tell(Command::BeginCut(self.job, epoch));
            }
            AppRequest::AbortCut(epoch) => return self.node.plane.tell(Command::AbortCut(self.job, epoch)),
            AppRequest::FenceDone { sequence, puts, begin } => {
                self.told.on_fence_done(sequence, &puts);
                return self.tell_launcher(&LauncherCommand::FenceDone { sequence, puts }, begin);
            }
            AppRequest::Launch(launch) => {
                (Step::Launch, self.launch(*launch).await.map(|()| AppEvent::Launched))
            }
            AppRequest::Dump(epoch) => (Step::Dump, self.leave_memory(epoch).await),
            AppRequest::Checkpoint(epoch) => {
                let checkpointed = self.checkpoint(epoch).await;
                (Step::Dump, self.end_if_lost(checkpointed).await)
            }
            AppRequest::DropSnapshot(epoch) => return self.drop_snapshot(epoch).await,
            AppRequest::Restore(epoch) => (Step::Restore, self.come_back(epoch).await),
            AppRequest::Discard => (Step::Discard, self.discard().await),
            AppRequest::Resume(epoch) => (Step::Resume, self.resume(epoch).await),
            AppRequest::Describe { generation } => {
                let holds = self.describe(generation).await;
                return self.tell(holds);
            }
            AppRequest::GoBack { life, placement } => match self.go_back(life, placement).await {
                Ok(()) => return,
                Err(failure) => (Step::Run, Err(failure)),
            },
            AppRequest::Copy { epoch, scatter, needed } => return self.copy(epoch, scatter, needed),
            AppRequest::FetchCopy(request) => match self.fetch(*request).await {
                Ok(()) => return,
                Err(failure) => (Step::Run, Err(failure)),
            },
            AppRequest::Receive(request) => return self.receive(*request).await,
            AppRequest::Release { .. } | AppRequest::DropCopies { .. } => {
                unreachable!("carried out elsewhere")
            }
        };
        self.answer(step, result);
    }

    async fn leave_memory(&mut self, epoch: Epoch) -> Result<AppEvent, Failure> {
        let result = match self.park() {
            Park::Criu => self.dump(epoch).await,
            Park::PageOut => self.page_out(epoch).await,
        };
        self.end_if_lost(result).await
    }

    async fn end_if_lost(&mut self, result: Result<AppEvent, Failure>) -> Result<AppEvent, Failure> {
        let is_lost = matches!(&result, Err(Failure::Other { alive: false, .. }));
        if is_lost && let Err(failure) = self.discard().await {
            warn!(%failure, "the processes of a failed dump could not be ended");
        }
        result
    }

    async fn come_back(&mut self, epoch: Epoch) -> Result<AppEvent, Failure> {
        match self.park() {
            Park::Criu => self.restore(epoch).await,
            Park::PageOut => self.page_in(epoch).await,
        }
    }

    async fn on_plane(&mut self, event: AppPlaneEvent) {
        if let AppPlaneEvent::Rewound { life } = event {
            return self.on_rewound(life).await;
        }
        if self.rewinding.is_some() {
            return;
        }
        match event {
            AppPlaneEvent::Rewound { .. } => {}
            AppPlaneEvent::Freeze { epoch } => self.freeze(epoch).await,
            AppPlaneEvent::Thaw { .. } => self.thaw(),
            AppPlaneEvent::Flushed { epoch, drained } => self.on_flushed(epoch, drained),
            AppPlaneEvent::Aborted { epoch } => {
                self.tell(AppEvent::Resumed { epoch, thaw: None, stood_still: Duration::ZERO });
            }
            AppPlaneEvent::CutFailed { reason, .. } => self.answer(Step::Cut, Err(Failure::alive(reason))),
            AppPlaneEvent::Corrupt { reason } => {
                let reason = format!("a rank has damaged its segment: {reason}");
                self.answer(Step::Run, Err(Failure::dead(reason)));
            }
            AppPlaneEvent::FromLauncher { message, read_to, unread: _ } => {
                self.read_to = read_to;
                if !self.is_deaf
                    && let Err(forged) = self.hear(&message)
                {
                    self.is_deaf = true;
                    let reason = format!("a message of its launcher is forged or damaged: {forged}");
                    self.answer(Step::Run, Err(Failure::dead(reason)));
                }
            }
        }
    }
}
