//! One-sided operations, emulated by messages: the target serves them when it makes progress.
//!
//! A write is a series of records, each with its offset; the target copies them into its memory and
//! acknowledges the last. A read is one request record, answered by a series of records. Both complete when
//! the reply is complete. This is stronger than libfabric requires, and MPI's flush needs it.

use super::address::Address;
use super::buffer::{Source, Spans};
use super::completion::{Completion, Failure};
use super::send::Transfer;
use super::wire::{self, Kind};
use super::{Core, Engine, Errno, Handle, Queued, Route};
use crate::abi::{
    FI_EACCES, FI_EHOSTUNREACH, FI_EINVAL, FI_ENOKEY, FI_READ, FI_REMOTE_READ, FI_REMOTE_WRITE, FI_RMA,
    FI_WRITE,
};
use coswitch_ring::{Header, SharedBytes};

/// Memory registered for access by other ranks. Remote addresses are offsets from its beginning.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Region {
    pub(crate) base: usize,
    pub(crate) len: usize,
    /// Set of `FI_REMOTE_READ` and `FI_REMOTE_WRITE`.
    pub(crate) access: u64,
}

impl Region {
    /// The memory at a remote address, if the access is allowed.
    fn at(&self, address: u64, len: u64, access: u64) -> Result<Spans, Errno> {
        let end = address.checked_add(len).ok_or(FI_EINVAL)?;
        if end > self.len as u64 {
            return Err(FI_EINVAL);
        }
        if self.access & access == 0 {
            return Err(FI_EACCES);
        }
        // SAFETY: the program has registered this memory for remote access and keeps it until it closes the
        // region. The part lies within it, as checked above.
        Ok(unsafe { Spans::one((self.base as *mut u8).wrapping_add(address as usize), len as usize) })
    }
}

/// A one-sided operation that waits for its reply.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(super) endpoint: u16,
    context: usize,
    reports: bool,
    act: Act,
    received: u64,
    total: u64,
}

#[derive(Debug)]
enum Act {
    Read(Spans),
    Write,
}

/// Parameters of a one-sided call.
#[derive(Debug)]
pub(crate) struct Rma {
    pub(crate) from: Address,
    pub(crate) to: Address,
    pub(crate) address: u64,
    pub(crate) key: u64,
    pub(crate) context: usize,
    pub(crate) reports: bool,
}

impl Rma {
    fn header(&self, kind: Kind, message: u64, total: u64) -> Header {
        Header { tag: self.address, data: self.key, message, total, ..wire::header(kind, self.from, self.to) }
    }

    fn operation(&self, act: Act, total: u64) -> Operation {
        let &Rma { from, context, reports, .. } = self;
        Operation { endpoint: from.endpoint, context, reports, act, received: 0, total }
    }
}

impl Engine {
    /// Writes `source` to remote memory.
    pub(crate) fn write(&mut self, rma: &Rma, source: Source) -> Result<(), Errno> {
        let total = source.len() as u64;
        match self.core.route(rma.to.rank) {
            Route::Nowhere => return Err(FI_EHOSTUNREACH),
            Route::Own => self.core.write_to_self(rma, &source),
            Route::Via(_, outbox) => {
                let message = self.core.new_message();
                self.core.operations.insert(message, rma.operation(Act::Write, total));
                let header = rma.header(Kind::Write, message, total);
                self.core.stream(header, source, outbox);
                self.flush_outbox(outbox);
            }
        }
        self.port.counters().on_sent(total);
        Ok(())
    }

    /// Reads remote memory into `spans`.
    pub(crate) fn read(&mut self, rma: &Rma, spans: Spans) -> Result<(), Errno> {
        let total = spans.len() as u64;
        match self.core.route(rma.to.rank) {
            Route::Nowhere => return Err(FI_EHOSTUNREACH),
            Route::Own => self.core.read_from_self(rma, &spans),
            Route::Via(_, outbox) => {
                let message = self.core.new_message();
                self.core.operations.insert(message, rma.operation(Act::Read(spans), total));
                let header = rma.header(Kind::Read, message, total);
                self.core.outboxes[outbox].queue.push_back(Queued::Control(header));
                self.flush_outbox(outbox);
            }
        }
        Ok(())
    }
}

impl Core {
    pub(crate) fn register(&mut self, domain: Handle, key: u64, region: Region) -> Result<(), Errno> {
        match self.regions.contains_key(&(domain, key)) {
            true => Err(FI_ENOKEY),
            false => {
                self.regions.insert((domain, key), region);
                Ok(())
            }
        }
    }

    pub(crate) fn deregister(&mut self, domain: Handle, key: u64) {
        self.regions.remove(&(domain, key));
    }

    /// Sends bytes that need no permission of the receiver.
    fn stream(&mut self, header: Header, source: Source, outbox: usize) {
        let total = header.total;
        if total == 0 {
            return self.outboxes[outbox].queue.push_back(Queued::Control(header));
        }
        let transfer =
            Transfer { header, source, outbox, sent: 0, allowed: total, goal: total, report: None };
        let number = self.new_message();
        self.start_transfer(number, transfer);
    }

    fn remote(
        &mut self,
        endpoint: u16,
        address: u64,
        key: u64,
        len: u64,
        access: u64,
    ) -> Result<Spans, Errno> {
        let domain = self.endpoint(endpoint).ok_or(FI_ENOKEY)?.domain;
        self.regions.get(&(domain, key)).ok_or(FI_ENOKEY)?.at(address, len, access)
    }

    fn write_to_self(&mut self, rma: &Rma, source: &Source) {
        let total = source.len() as u64;
        let result = self.remote(rma.to.endpoint, rma.address, rma.key, total, FI_REMOTE_WRITE);
        if let Ok(spans) = &result {
            spans.write(0, &source.to_vec());
        }
        self.count_access(rma.to.endpoint, FI_REMOTE_WRITE);
        self.finish_operation(rma.operation(Act::Write, total), result.err());
    }

    fn read_from_self(&mut self, rma: &Rma, spans: &Spans) {
        let total = spans.len() as u64;
        let result = self.remote(rma.to.endpoint, rma.address, rma.key, total, FI_REMOTE_READ);
        if let Ok(memory) = &result {
            spans.copy_from(memory);
        }
        self.count_access(rma.to.endpoint, FI_REMOTE_READ);
        self.finish_operation(rma.operation(Act::Read(Spans::EMPTY), total), result.err());
    }

    /// Handles a record that writes to this rank's memory.
    pub(crate) fn on_write(&mut self, header: &Header, payload: SharedBytes<'_>) {
        let endpoint = header.dst_endpoint;
        let memory = self.remote(endpoint, header.tag, header.data, header.total, FI_REMOTE_WRITE);
        if let Ok(spans) = &memory {
            spans.write_shared(header.offset as usize, payload);
        }
        if header.offset.saturating_add(payload.len() as u64) == header.total {
            self.count_access(endpoint, FI_REMOTE_WRITE);
            let error = memory.err().unwrap_or(0) as u64;
            self.control(Header { data: error, ..wire::reply(Kind::Ack, header) });
        }
    }

    /// Handles a request to read this rank's memory.
    pub(crate) fn on_read(&mut self, header: &Header) {
        let endpoint = header.dst_endpoint;
        let memory = self.remote(endpoint, header.tag, header.data, header.total, FI_REMOTE_READ);
        self.count_access(endpoint, FI_REMOTE_READ);
        match (memory, self.route(header.src)) {
            (Ok(spans), Route::Via(_, outbox)) => {
                let reply = Header { total: header.total, ..wire::reply(Kind::ReadReply, header) };
                self.stream(reply, Source::User(spans), outbox);
            }
            (Err(error), _) => self.control(Header { data: error as u64, ..wire::reply(Kind::Ack, header) }),
            _ => {}
        }
    }

    /// Handles bytes that this rank has requested.
    pub(crate) fn on_read_reply(&mut self, header: &Header, payload: SharedBytes<'_>) {
        let Some(operation) = self.operations.get_mut(&header.message) else { return };
        if let Act::Read(spans) = &operation.act {
            spans.write_shared(header.offset as usize, payload);
        }
        operation.received += payload.len() as u64;
        if operation.received >= operation.total {
            self.end_operation(header.message, None);
        }
    }

    /// Handles the end of a write, or the rejection of an operation.
    pub(crate) fn on_ack(&mut self, header: &Header) {
        self.end_operation(header.message, (header.data != 0).then_some(header.data as i32));
    }

    fn end_operation(&mut self, message: u64, error: Option<Errno>) {
        if let Some(operation) = self.operations.remove(&message) {
            self.finish_operation(operation, error);
        }
    }

    fn finish_operation(&mut self, operation: Operation, error: Option<Errno>) {
        let Some(endpoint) = self.endpoint(operation.endpoint) else { return };
        let sending = endpoint.sending;
        let (kind, counter) = match operation.act {
            Act::Read(_) => (FI_READ, endpoint.counters.read),
            Act::Write => (FI_WRITE, endpoint.counters.write),
        };
        let len = operation.total as usize;
        let completion =
            Completion { context: operation.context, flags: FI_RMA | kind, len, ..Completion::EMPTY };
        match error {
            None => self.complete(sending, operation.reports, completion),
            Some(error) => self.fail(sending, Failure::new(completion, error)),
        }
        self.count(counter, error.is_some());
    }

    /// Counts an access by another rank.
    fn count_access(&mut self, endpoint: u16, access: u64) {
        let Some(endpoint) = self.endpoint(endpoint) else { return };
        let counters = endpoint.counters;
        self.count(
            if access == FI_REMOTE_READ { counters.remote_read } else { counters.remote_write },
            false,
        );
    }
}
