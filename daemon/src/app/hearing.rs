//! What the launcher says of its ranks, checked against what the daemon knows.
//!
//! The launcher is as good as its ranks: these write to the segment as well, so any of them can put a
//! message into the launcher's ring. What such a message may do is to end its own job.

use std::collections::BTreeSet;

use coswitch_launcher::protocol::{
    ExitStatus, FENCES_MAX, LauncherEvent, PUTS_BYTES_MAX, ProtocolError, put_bytes,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Limit of the reasons that come with a message, in characters.
const REASON_MAX: usize = 4096;

/// Why a message is not one of the launcher.
#[derive(Debug, Error, PartialEq, Eq)]
pub(super) enum Forged {
    #[error("{0}")]
    Protocol(#[from] ProtocolError),
    #[error("it tells of rank {0}, which is not on this node")]
    Stranger(u32),
    #[error("it tells of the end of rank {0} once more")]
    Again(u32),
    #[error("it tells of a second abort")]
    SecondAbort,
    #[error("it tells of fence {told}, and the last one was {last}")]
    Fence { told: u64, last: u64 },
    #[error("it tells of a fence, and all ranks are on this node")]
    NoFence,
    #[error("it tells of more than {FENCES_MAX} fences")]
    Fences,
    #[error("it tells of a fence with {0} bytes of keys and values, and a run has {PUTS_BYTES_MAX} at most")]
    Puts(usize),
    #[error("it tells of the end of all ranks, and {0} of them have not ended")]
    Alive(usize),
    #[error("it comes after the end of all ranks")]
    Late,
}

/// What was heard of the processes that are there now; a snapshot holds it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Hearing {
    /// The number of the last fence; `None` where it is not known.
    fence: Option<u64>,
    /// The ranks that have ended; `None` where they are not known.
    ended: Option<BTreeSet<u32>>,
    has_aborted: bool,
    all_exited: bool,
    /// A rank was not started, and so others after it.
    is_incomplete: bool,
}

impl Hearing {
    /// Of processes that have just been started.
    pub(super) fn from_launch() -> Self {
        Self { fence: Some(0), ended: Some(BTreeSet::new()), ..Self::default() }
    }

    /// Takes note of an event, where it may be one; shortens the reasons in it. `here` are the ranks of
    /// this node, and `is_alone` says that there are no others.
    pub(super) fn on(
        &mut self,
        mut event: LauncherEvent,
        here: &BTreeSet<u32>,
        is_alone: bool,
    ) -> Result<LauncherEvent, Forged> {
        if self.all_exited {
            return Err(Forged::Late);
        }
        match &mut event {
            LauncherEvent::Ready => {}
            LauncherEvent::Fence { .. } if is_alone => return Err(Forged::NoFence),
            LauncherEvent::Fence { sequence, puts } => self.on_fence(*sequence, puts)?,
            LauncherEvent::RankExited { rank, status } => {
                self.on_exit(*rank, here)?;
                if let ExitStatus::ExecFailed(reason) = status {
                    shorten(reason);
                    self.is_incomplete = true;
                }
            }
            LauncherEvent::Abort { rank, message: reason, .. } | LauncherEvent::Broke { rank, reason } => {
                if !here.contains(rank) {
                    return Err(Forged::Stranger(*rank));
                }
                if std::mem::replace(&mut self.has_aborted, true) {
                    return Err(Forged::SecondAbort);
                }
                shorten(reason);
            }
            LauncherEvent::AllExited => {
                let alive = self.ended.as_ref().map_or(0, |ended| here.difference(ended).count());
                if alive > 0 && !self.is_incomplete {
                    return Err(Forged::Alive(alive));
                }
                self.all_exited = true;
            }
        }
        Ok(event)
    }

    fn on_fence(&mut self, told: u64, puts: &[(String, String)]) -> Result<(), Forged> {
        if let Some(last) = self.fence.filter(|last| Some(told) != last.checked_add(1)) {
            return Err(Forged::Fence { told, last });
        }
        if told > FENCES_MAX {
            return Err(Forged::Fences);
        }
        let bytes = puts.iter().map(|(key, value)| put_bytes(key, value)).sum();
        if bytes > PUTS_BYTES_MAX {
            return Err(Forged::Puts(bytes));
        }
        self.fence = Some(told);
        Ok(())
    }

    fn on_exit(&mut self, rank: u32, here: &BTreeSet<u32>) -> Result<(), Forged> {
        if !here.contains(&rank) {
            return Err(Forged::Stranger(rank));
        }
        let is_first = self.ended.as_mut().is_none_or(|ended| ended.insert(rank));
        if is_first { Ok(()) } else { Err(Forged::Again(rank)) }
    }
}

fn shorten(reason: &mut String) {
    if reason.len() > REASON_MAX {
        *reason = reason.chars().take(REASON_MAX).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OK: ExitStatus = ExitStatus::Exited(0);

    fn fence(sequence: u64) -> LauncherEvent {
        LauncherEvent::Fence { sequence, puts: Vec::new() }
    }

    fn exit(rank: u32) -> LauncherEvent {
        LauncherEvent::RankExited { rank, status: OK }
    }

    fn abort(rank: u32) -> LauncherEvent {
        LauncherEvent::Abort { rank, code: 3, message: String::new() }
    }

    /// What is wrong with the last event, said of ranks 2 and 5 of an application with others.
    fn wrong(mut hearing: Hearing, events: &[LauncherEvent]) -> Option<Forged> {
        let here = BTreeSet::from([2, 5]);
        let (last, before) = events.split_last().unwrap();
        for event in before {
            assert_eq!(hearing.on(event.clone(), &here, false).as_ref(), Ok(event));
        }
        hearing.on(last.clone(), &here, false).err()
    }

    fn new() -> Hearing {
        Hearing::from_launch()
    }

    fn after(fence: u64) -> Hearing {
        Hearing { fence: Some(fence), ..Hearing::default() }
    }

    #[test]
    fn what_a_launcher_says_in_its_life_is_heard() {
        let all = [LauncherEvent::Ready, fence(1), fence(2), exit(5), exit(2), LauncherEvent::AllExited];
        assert_eq!(wrong(new(), &all), None);
        let aborted = [LauncherEvent::Ready, abort(5), exit(2), exit(5), LauncherEvent::AllExited];
        assert_eq!(wrong(new(), &aborted), None);
        let status = ExitStatus::ExecFailed("no such file".into());
        let not_started = [LauncherEvent::RankExited { rank: 2, status }, LauncherEvent::AllExited];
        assert_eq!(wrong(new(), &not_started), None);
    }

    #[test]
    fn fences_come_one_after_the_other_also_after_a_restore() {
        assert_eq!(wrong(new(), &[fence(2)]), Some(Forged::Fence { told: 2, last: 0 }));
        assert_eq!(wrong(new(), &[fence(1), fence(1)]), Some(Forged::Fence { told: 1, last: 1 }));
        assert_eq!(wrong(new(), &[fence(u64::MAX)]), Some(Forged::Fence { told: u64::MAX, last: 0 }));
        assert_eq!(wrong(after(7), &[fence(8)]), None);
        assert_eq!(wrong(after(7), &[fence(7)]), Some(Forged::Fence { told: 7, last: 7 }));
        assert_eq!(wrong(after(FENCES_MAX), &[fence(FENCES_MAX + 1)]), Some(Forged::Fences));
        assert_eq!(wrong(after(u64::MAX), &[fence(0)]), Some(Forged::Fence { told: 0, last: u64::MAX }));
        assert_eq!(wrong(Hearing::default(), &[fence(9)]), None, "the last one is not known");
        assert_eq!(new().on(fence(1), &BTreeSet::from([0]), true), Err(Forged::NoFence));
    }

    #[test]
    fn a_fence_that_a_frame_could_not_hold_is_refused() {
        let put = |bytes: usize| vec![(String::new(), "v".repeat(bytes)); 2];
        let event = |bytes| LauncherEvent::Fence { sequence: 1, puts: put(bytes) };
        assert_eq!(wrong(new(), &[event(PUTS_BYTES_MAX / 2 - 8)]), None);
        assert_eq!(wrong(new(), &[event(PUTS_BYTES_MAX / 2)]), Some(Forged::Puts(PUTS_BYTES_MAX + 16)));
    }

    #[test]
    fn ends_of_ranks_elsewhere_and_second_ends_are_refused() {
        assert_eq!(wrong(new(), &[exit(3)]), Some(Forged::Stranger(3)));
        assert_eq!(wrong(new(), &[abort(0)]), Some(Forged::Stranger(0)));
        assert_eq!(wrong(new(), &[exit(2), exit(2)]), Some(Forged::Again(2)));
        assert_eq!(wrong(new(), &[abort(2), abort(2)]), Some(Forged::SecondAbort));
        assert_eq!(wrong(new(), &[exit(2), LauncherEvent::AllExited]), Some(Forged::Alive(1)));
        let late = [exit(2), exit(5), LauncherEvent::AllExited, LauncherEvent::Ready];
        assert_eq!(wrong(new(), &late), Some(Forged::Late));
        let restored = Hearing { ended: Some(BTreeSet::from([2])), ..after(1) };
        assert_eq!(wrong(restored, &[exit(5), LauncherEvent::AllExited]), None);
        assert_eq!(
            wrong(Hearing::default(), &[LauncherEvent::AllExited]),
            None,
            "it is not known who has ended"
        );
    }

    #[test]
    fn a_reason_is_shortened() {
        let (here, reason) = (BTreeSet::from([2]), "x".repeat(1 << 20));
        let event = LauncherEvent::Broke { rank: 2, reason };
        let Ok(LauncherEvent::Broke { reason, .. }) = new().on(event, &here, false) else {
            panic!("it is heard")
        };
        assert_eq!(reason.len(), REASON_MAX);
    }
}
