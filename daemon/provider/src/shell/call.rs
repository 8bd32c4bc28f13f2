//! Common part of the data calls: converts the arguments of a call and hands them to the engine.

use super::code;
use super::info::INJECT_BYTES;
use crate::abi::*;
use crate::engine::address::Address;
use crate::engine::buffer::{Source, Spans};
use crate::engine::endpoint::Reporting;
use crate::engine::matching::Pattern;
use crate::engine::receive::{Peek, Receive};
use crate::engine::send::{Outgoing, SendReport};
use crate::engine::{Engine, Errno, SharedEngine};
use std::ffi::c_void;

#[repr(C)]
#[derive(Debug)]
pub(super) struct Ep {
    pub(super) fid: FidEp,
    pub(super) engine: &'static SharedEngine,
    pub(super) number: u16,
}

/// Arguments of a send call of any form.
pub(super) struct SendCall {
    pub(super) spans: Spans,
    pub(super) to: u64,
    pub(super) tag: Option<u64>,
    pub(super) data: Option<u64>,
    pub(super) context: *mut c_void,
    /// `None`: a call without flags, for which the endpoint's flags apply.
    pub(super) flags: Option<u64>,
    pub(super) inject: bool,
}

/// Arguments of a receive call of any form.
pub(super) struct ReceiveCall {
    pub(super) spans: Spans,
    pub(super) from: u64,
    /// Tag and ignored bits.
    pub(super) tag: Option<(u64, u64)>,
    pub(super) context: *mut c_void,
    pub(super) flags: Option<u64>,
}

fn reports(reporting: &Reporting, flags: Option<u64>) -> bool {
    !reporting.selective || flags.unwrap_or(reporting.default_flags) & FI_COMPLETION != 0
}

impl Ep {
    /// # Safety
    /// `fid` is an endpoint made by `open` that is not closed.
    pub(super) unsafe fn of<'a>(fid: *mut FidEp) -> &'a Ep {
        // SAFETY: the caller guarantees a boxed object of this type, whose first field is the fid.
        unsafe { &*fid.cast::<Ep>() }
    }

    pub(super) fn send(&self, call: SendCall) -> isize {
        let inject = call.inject || call.flags.is_some_and(|flags| flags & FI_INJECT != 0);
        if inject && call.spans.len() > INJECT_BYTES {
            return -(FI_EMSGSIZE as isize);
        }
        code(self.engine.with(|engine| {
            let (from, to, sending) = self.ends(engine, call.to)?;
            // An inject call reports no completion.
            let reports = !call.inject && reports(&sending, call.flags);
            let tagged = call.tag.is_some();
            let report =
                SendReport { endpoint: self.number, tagged, context: call.context as usize, reports };
            let (source, tag) = (Source::User(call.spans), call.tag.unwrap_or(0));
            engine.send(Outgoing { from, to, source, tag, tagged, data: call.data, report }, inject)
        }))
    }

    /// Sender and receiver of an operation, and how it is reported.
    pub(super) fn ends(&self, engine: &mut Engine, to: u64) -> Result<(Address, Address, Reporting), Errno> {
        let to = engine.core.address(self.number, to).ok_or(FI_EADDRNOTAVAIL)?;
        let from = Address { rank: engine.core.rank, endpoint: self.number };
        let sending = engine.core.endpoint(self.number).ok_or(FI_EINVAL)?.sending;
        Ok((from, to, sending))
    }

    /// Sender and receiver of an operation, and whether it reports its success.
    pub(super) fn rma_ends(
        &self,
        engine: &mut Engine,
        to: u64,
        flags: Option<u64>,
    ) -> Result<(Address, Address, bool), Errno> {
        let (from, to, sending) = self.ends(engine, to)?;
        Ok((from, to, reports(&sending, flags)))
    }

    pub(super) fn receive(&self, call: ReceiveCall) -> isize {
        let flags = call.flags.unwrap_or(0);
        let result = self.engine.with(|engine| {
            let receive = self.as_receive(engine, call)?;
            if flags & FI_PEEK != 0 {
                let act = match flags {
                    _ if flags & FI_CLAIM != 0 => Peek::Claim,
                    _ if flags & FI_DISCARD != 0 => Peek::Discard,
                    _ => Peek::Look,
                };
                return Ok(engine.peek(&receive, act));
            }
            match flags {
                _ if flags & FI_DISCARD != 0 => engine.core.discard_claimed(&receive)?,
                _ if flags & FI_CLAIM != 0 => engine.core.receive_claimed(receive)?,
                _ => engine.core.receive(receive),
            }
            Ok(true)
        });
        if result == Ok(false) {
            // Repeated peeks are a form of waiting.
            self.engine.pause_after_miss();
        }
        code(result.map(drop))
    }

    fn as_receive(&self, engine: &mut Engine, call: ReceiveCall) -> Result<Receive, Errno> {
        let source = match call.from {
            FI_ADDR_UNSPEC => None,
            number => Some(engine.core.address(self.number, number).ok_or(FI_EADDRNOTAVAIL)?),
        };
        let receiving = engine.core.endpoint(self.number).ok_or(FI_EINVAL)?.receiving;
        let flags = call.flags.unwrap_or(receiving.default_flags);
        // Untagged messages are matched by source only.
        let (tag, ignore) = call.tag.unwrap_or((0, u64::MAX));
        Ok(Receive {
            endpoint: self.number,
            tagged: call.tag.is_some(),
            pattern: Pattern { source, tag, ignore },
            context: call.context as usize,
            reports: reports(&receiving, call.flags),
            spans: call.spans,
            multi: call.tag.is_none() && flags & FI_MULTI_RECV != 0,
        })
    }
}
