//! Incoming messages: from a record, or a send to the own rank, to the completion of the receive.

use super::address::Address;
use super::buffer::Spans;
use super::completion::{Completion, Failure};
use super::endpoint::{Body, Memory, MultiBuffer, Posted, Unexpected};
use super::matching::{Envelope, Pattern};
use super::send::Outgoing;
use super::wire::{self, HAS_DATA, Kind, TAGGED};
use super::{Core, Engine, Errno};
use crate::abi::{
    FI_ECANCELED, FI_ENOENT, FI_ENOMSG, FI_ETRUNC, FI_MSG, FI_MULTI_RECV, FI_RECV, FI_REMOTE_CQ_DATA,
    FI_TAGGED,
};
use coswitch_ring::{Header, SharedBytes};

/// A message that is matched with its receive.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(super) endpoint: u16,
    tagged: bool,
    envelope: Envelope,
    data: Option<u64>,
    total: u64,
    context: usize,
    reports: bool,
    spans: Spans,
    multi: Option<usize>,
    /// Bytes that have arrived, of those that fit.
    received: u64,
}

impl Incoming {
    /// Number of bytes of the message that fit into the receive.
    fn wanted(&self) -> u64 {
        self.total.min(self.spans.len() as u64)
    }
}

/// Parameters of a receive call.
#[derive(Debug)]
pub(crate) struct Receive {
    pub(crate) endpoint: u16,
    pub(crate) tagged: bool,
    pub(crate) pattern: Pattern,
    pub(crate) context: usize,
    pub(crate) reports: bool,
    pub(crate) spans: Spans,
    pub(crate) multi: bool,
}

/// Action on a message that a peek finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peek {
    Look,
    Claim,
    Discard,
}

impl Core {
    /// Posts a receive, or completes it with messages that have already arrived.
    pub(crate) fn receive(&mut self, receive: Receive) {
        let Receive { endpoint, tagged, pattern, context, reports, spans, multi } = receive;
        if multi {
            let buffer = MultiBuffer { spans, used: 0, outstanding: 0, exhausted: false };
            let multi = self.multi_buffers.insert(buffer);
            return self.receive_many(
                endpoint,
                tagged,
                pattern,
                Posted { context, reports, memory: Memory::Multi(multi) },
            );
        }
        let posted = Posted { context, reports, memory: Memory::Single(spans) };
        let Some(queue) = self.endpoint(endpoint).map(|endpoint| endpoint.queue_mut(tagged)) else { return };
        match queue.take_unexpected(&pattern) {
            None => queue.post(pattern, posted),
            Some((envelope, arrived)) => self.take(endpoint, tagged, envelope, arrived, posted),
        }
    }

    fn receive_many(&mut self, number: u16, tagged: bool, pattern: Pattern, posted: Posted) {
        let Memory::Multi(multi) = posted.memory else {
            unreachable!("the memory is a multi-receive buffer")
        };
        loop {
            let Some(queue) = self.endpoint(number).map(|endpoint| endpoint.queue_mut(tagged)) else {
                return;
            };
            let Some((envelope, arrived)) = queue.take_unexpected(&pattern) else {
                return queue.post(pattern, posted);
            };
            let one = Posted { memory: Memory::Multi(multi), ..posted };
            self.take(number, tagged, envelope, arrived, one);
            // The last message may have used up the buffer, and even completed it.
            if self.multi_buffers.get(multi).is_none_or(|buffer| buffer.exhausted) {
                return;
            }
        }
    }

    /// Pairs an unexpected message with its receive.
    fn take(&mut self, number: u16, tagged: bool, envelope: Envelope, arrived: Unexpected, posted: Posted) {
        let Unexpected { data, total, body } = arrived;
        let mut incoming = self.pair(number, tagged, envelope, data, total, posted);
        match body {
            Body::Whole(bytes) => {
                incoming.spans.write(0, &bytes);
                self.finish_receive(incoming);
            }
            Body::Own(send) => self.copy_own(incoming, *send),
            Body::Partial(key) => {
                let bytes = self.partials.remove(&key).unwrap_or_default();
                incoming.spans.write(0, &bytes);
                incoming.received = (bytes.len() as u64).min(incoming.wanted());
                self.ask_for_rest(key, incoming, bytes.len() as u64);
            }
        }
    }

    /// Pairs a message with a receive and assigns it memory of the caller.
    fn pair(
        &mut self,
        endpoint: u16,
        tagged: bool,
        envelope: Envelope,
        data: Option<u64>,
        total: u64,
        posted: Posted,
    ) -> Incoming {
        let Posted { context, reports, memory } = posted;
        let (spans, multi) = match memory {
            Memory::Single(spans) => (spans, None),
            Memory::Multi(multi) => (self.reserve(endpoint, multi, total as usize), Some(multi)),
        };
        Incoming { endpoint, tagged, envelope, data, total, context, reports, spans, multi, received: 0 }
    }

    /// Reserves bytes of a multi-receive buffer for one message.
    fn reserve(&mut self, endpoint: u16, multi: usize, total: usize) -> Spans {
        let min = self.endpoint(endpoint).map_or(0, |endpoint| endpoint.multi_receive_min);
        let buffer = self.multi_buffers.get_mut(multi).expect("the table holds every posted buffer");
        let part = buffer.spans.part_of_one(buffer.used, total);
        buffer.used += part.len();
        buffer.outstanding += 1;
        buffer.exhausted = buffer.spans.len() - buffer.used < min.max(1);
        part
    }

    /// Pairs an arriving message with the posted receive that it goes to.
    fn match_arrival(
        &mut self,
        number: u16,
        tagged: bool,
        envelope: Envelope,
        data: Option<u64>,
        total: u64,
    ) -> Option<Incoming> {
        let queue = self.endpoint(number)?.queue_mut(tagged);
        let place = queue.find_posted(&envelope)?;
        let &Posted { context, reports, ref memory } = queue.posted(place);
        let Memory::Multi(multi) = *memory else {
            let posted = queue.take_posted(place);
            return Some(self.pair(number, tagged, envelope, data, total, posted));
        };
        let posted = Posted { context, reports, memory: Memory::Multi(multi) };
        let incoming = self.pair(number, tagged, envelope, data, total, posted);
        if self.multi_buffers.get(multi).is_some_and(|buffer| buffer.exhausted) {
            self.endpoint(number)?.queue_mut(tagged).take_posted(place);
        }
        Some(incoming)
    }

    /// Handles a message, or the beginning of a long one.
    pub(crate) fn on_message(&mut self, header: &Header, payload: SharedBytes<'_>) {
        let tagged = header.flags & TAGGED != 0;
        let data = (header.flags & HAS_DATA != 0).then_some(header.data);
        let envelope = Envelope { source: wire::sender(header), tag: header.tag };
        let key = (header.src, header.message);
        let whole = header.total == payload.len() as u64;
        if let Some(mut incoming) =
            self.match_arrival(header.dst_endpoint, tagged, envelope, data, header.total)
        {
            incoming.spans.write_shared(0, payload);
            incoming.received = (payload.len() as u64).min(incoming.wanted());
            return if whole {
                self.finish_receive(incoming)
            } else {
                self.ask_for_rest(key, incoming, payload.len() as u64)
            };
        }
        let Some(endpoint) = self.endpoint(header.dst_endpoint) else { return };
        let body = if whole { Body::Whole(payload.to_vec().into()) } else { Body::Partial(key) };
        endpoint.queue_mut(tagged).store(envelope, Unexpected { data, total: header.total, body });
        if !whole {
            self.partials.insert(key, payload.to_vec());
        }
        self.changes += 1;
    }

    /// Allows the sender of a matched long message to send the rest, as far as it fits.
    fn ask_for_rest(&mut self, key: (u32, u64), incoming: Incoming, here: u64) {
        if here < incoming.total {
            let from = Address { rank: self.rank, endpoint: incoming.endpoint };
            let clear = wire::header(Kind::Cts, from, incoming.envelope.source);
            self.control(Header { message: key.1, total: incoming.wanted(), ..clear });
        }
        if incoming.received >= incoming.wanted() {
            self.finish_receive(incoming);
        } else {
            self.incoming.insert(key, incoming);
        }
    }

    /// Handles further bytes of a long message.
    pub(crate) fn on_data(&mut self, header: &Header, payload: SharedBytes<'_>) {
        let key = (header.src, header.message);
        if let Some(incoming) = self.incoming.get_mut(&key) {
            incoming.spans.write_shared(header.offset as usize, payload);
            let end = header.offset.saturating_add(payload.len() as u64).min(incoming.wanted());
            incoming.received = incoming.received.max(end);
            if incoming.received >= incoming.wanted() {
                let incoming = self.incoming.remove(&key).expect("the message was found above");
                self.finish_receive(incoming);
            }
        } else if let Some(bytes) = self.partials.get_mut(&key) {
            payload.append_to(bytes);
        }
        // Otherwise the message was truncated or discarded, and nothing needs its remaining bytes.
    }

    fn finish_receive(&mut self, incoming: Incoming) {
        let Incoming { endpoint, tagged, envelope, data, total, context, reports, ref spans, multi, .. } =
            incoming;
        let released = multi.is_some_and(|multi| self.release(multi));
        let kind = if tagged { FI_TAGGED } else { FI_MSG };
        let with_data = if data.is_some() { FI_REMOTE_CQ_DATA } else { 0 };
        let last = if released { FI_MULTI_RECV } else { 0 };
        let completion = Completion {
            context,
            flags: FI_RECV | kind | with_data | last,
            len: incoming.wanted() as usize,
            buffer: spans.base() as usize,
            data: data.unwrap_or(0),
            tag: envelope.tag,
            source: Some(envelope.source),
        };
        let overflow = (total - incoming.wanted()) as usize;
        let Some(endpoint) = self.endpoint(endpoint) else { return };
        let (receiving, counter) = (endpoint.receiving, endpoint.counters.receive);
        if overflow > 0 {
            self.fail(receiving, Failure { completion, overflow, error: FI_ETRUNC });
        } else {
            self.complete(receiving, reports || released, completion);
        }
        self.count(counter, overflow > 0);
        self.received_messages += 1;
        self.received_bytes += completion.len as u64;
    }

    /// Ends one message of a multi-receive buffer; true if it was the last and the program gets the buffer
    /// back.
    fn release(&mut self, multi: usize) -> bool {
        let Some(buffer) = self.multi_buffers.get_mut(multi) else { return false };
        buffer.outstanding -= 1;
        let last = buffer.exhausted && buffer.outstanding == 0;
        if last {
            self.multi_buffers.remove(multi);
        }
        last
    }

    /// Sends to the own rank: matched like any other message, and copied once.
    pub(crate) fn send_to_self(&mut self, send: Outgoing, must_not_wait: bool) {
        let envelope = Envelope { source: send.from, tag: send.tag };
        let total = send.source.len() as u64;
        let number = send.to.endpoint;
        if let Some(incoming) = self.match_arrival(number, send.tagged, envelope, send.data, total) {
            return self.copy_own(incoming, send);
        }
        let (data, tagged) = (send.data, send.tagged);
        let body = if must_not_wait || total <= self.segment.chunk_bytes() as u64 {
            let bytes = send.source.to_vec().into();
            self.report_sent(send.report, total as usize);
            Body::Whole(bytes)
        } else {
            Body::Own(Box::new(send))
        };
        if let Some(endpoint) = self.endpoint(number) {
            endpoint.queue_mut(tagged).store(envelope, Unexpected { data, total, body });
        }
    }

    fn copy_own(&mut self, mut incoming: Incoming, send: Outgoing) {
        let mut offset = 0;
        send.source.with_slices(0, send.source.len(), |slices| {
            for slice in slices {
                incoming.spans.write(offset, slice);
                offset += slice.len();
            }
        });
        incoming.received = incoming.wanted();
        self.report_sent(send.report, send.source.len());
        self.finish_receive(incoming);
    }

    /// Cancels a posted receive, which then fails with FI_ECANCELED.
    pub(crate) fn cancel(&mut self, number: u16, context: usize) -> Result<(), Errno> {
        let endpoint = self.endpoint(number).ok_or(FI_ENOENT)?;
        let is_it = |posted: &Posted| posted.context == context;
        let (posted, kind) = match endpoint.tagged.cancel(is_it) {
            Some(posted) => (posted, FI_TAGGED),
            None => (endpoint.untagged.cancel(is_it).ok_or(FI_ENOENT)?, FI_MSG),
        };
        let receiving = endpoint.receiving;
        if let Memory::Multi(multi) = posted.memory {
            let buffer = self.multi_buffers.get_mut(multi).expect("the table holds every posted buffer");
            buffer.exhausted = true;
            if buffer.outstanding > 0 {
                // Bytes are still to arrive in this buffer: the last message returns it to the program.
                return Ok(());
            }
            self.multi_buffers.remove(multi);
        }
        let completion = Completion { context, flags: FI_RECV | kind, ..Completion::EMPTY };
        self.fail(receiving, Failure::new(completion, FI_ECANCELED));
        Ok(())
    }
}

impl Engine {
    /// Looks for a message without receiving it and reports the result: a completion, or a failure
    /// (FI_ENOMSG) if there is none. Returns whether there was one.
    pub(crate) fn peek(&mut self, receive: &Receive, act: Peek) -> bool {
        self.poll();
        self.core.peek(receive, act)
    }
}

impl Core {
    fn peek(&mut self, receive: &Receive, act: Peek) -> bool {
        let &Receive { endpoint: number, tagged, pattern, context, .. } = receive;
        let Some(endpoint) = self.endpoint(number) else { return false };
        let receiving = endpoint.receiving;
        let kind = FI_RECV | if tagged { FI_TAGGED } else { FI_MSG };
        let Some((envelope, arrived)) = endpoint.queue_mut(tagged).peek_unexpected(&pattern) else {
            let completion = Completion { context, flags: kind, tag: pattern.tag, ..Completion::EMPTY };
            self.fail(receiving, Failure::new(completion, FI_ENOMSG));
            return false;
        };
        let with_data = if arrived.data.is_some() { FI_REMOTE_CQ_DATA } else { 0 };
        let found = Completion {
            context,
            flags: kind | with_data,
            len: arrived.total as usize,
            data: arrived.data.unwrap_or(0),
            tag: envelope.tag,
            source: Some(envelope.source),
            ..Completion::EMPTY
        };
        if act != Peek::Look {
            let taken = endpoint.queue_mut(tagged).take_unexpected(&pattern);
            let (envelope, arrived) = taken.expect("the message was found above");
            match act {
                Peek::Claim => endpoint.claimed.push((context, envelope, arrived)),
                _ => self.discard(number, envelope, arrived),
            }
        }
        self.complete(receiving, true, found);
        true
    }

    /// Receives a message that an earlier peek with the same context claimed.
    pub(crate) fn receive_claimed(&mut self, receive: Receive) -> Result<(), Errno> {
        let Receive { endpoint, tagged, context, reports, spans, .. } = receive;
        let (envelope, arrived) = self.take_claimed(endpoint, context)?;
        self.take(
            endpoint,
            tagged,
            envelope,
            arrived,
            Posted { context, reports, memory: Memory::Single(spans) },
        );
        Ok(())
    }

    /// Drops a message that an earlier peek claimed, and reports a completion.
    pub(crate) fn discard_claimed(&mut self, receive: &Receive) -> Result<(), Errno> {
        let (envelope, arrived) = self.take_claimed(receive.endpoint, receive.context)?;
        let Some(endpoint) = self.endpoint(receive.endpoint) else { return Err(FI_ENOENT) };
        let receiving = endpoint.receiving;
        let kind = if receive.tagged { FI_TAGGED } else { FI_MSG };
        let completion = Completion {
            context: receive.context,
            flags: FI_RECV | kind,
            tag: envelope.tag,
            ..Completion::EMPTY
        };
        self.discard(receive.endpoint, envelope, arrived);
        self.complete(receiving, receive.reports, completion);
        Ok(())
    }

    fn take_claimed(&mut self, number: u16, context: usize) -> Result<(Envelope, Unexpected), Errno> {
        let claimed = &mut self.endpoint(number).ok_or(FI_ENOENT)?.claimed;
        let place = claimed.iter().position(|(by, ..)| *by == context).ok_or(FI_ENOMSG)?;
        let (_, envelope, arrived) = claimed.remove(place);
        Ok((envelope, arrived))
    }

    /// Drops a message and completes it at its sender.
    fn discard(&mut self, number: u16, envelope: Envelope, arrived: Unexpected) {
        match arrived.body {
            Body::Whole(_) => {}
            Body::Own(send) => self.report_sent(send.report, send.source.len()),
            Body::Partial(key) => {
                self.partials.remove(&key);
                let from = Address { rank: self.rank, endpoint: number };
                self.control(Header {
                    message: key.1,
                    total: 0,
                    ..wire::header(Kind::Cts, from, envelope.source)
                });
            }
        }
    }
}
