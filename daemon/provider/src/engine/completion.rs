//! Completion queues and counters: report that operations have finished or failed.

use super::address::Address;
use crate::abi::CqErrEntry;
use std::collections::VecDeque;
use std::ffi::c_void;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Completion {
    /// The caller's context pointer, as a number.
    pub(crate) context: usize,
    pub(crate) flags: u64,
    pub(crate) len: usize,
    pub(crate) buffer: usize,
    pub(crate) data: u64,
    pub(crate) tag: u64,
    /// Sender of a received message.
    pub(crate) source: Option<Address>,
}

impl Completion {
    pub(crate) const EMPTY: Completion =
        Completion { context: 0, flags: 0, len: 0, buffer: 0, data: 0, tag: 0, source: None };
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Failure {
    pub(crate) completion: Completion,
    /// Bytes that did not fit.
    pub(crate) overflow: usize,
    /// Positive error number of libfabric.
    pub(crate) error: i32,
}

impl Failure {
    pub(crate) fn new(completion: Completion, error: i32) -> Failure {
        Failure { completion, overflow: 0, error }
    }

    pub(crate) fn entry(&self) -> CqErrEntry {
        CqErrEntry {
            op_context: self.completion.context as *mut c_void,
            flags: self.completion.flags,
            len: self.completion.len,
            buf: self.completion.buffer as *mut c_void,
            data: self.completion.data,
            tag: self.completion.tag,
            olen: self.overflow,
            err: self.error,
            prov_errno: 0,
        }
    }
}

/// A completion queue. Failures are reported before completions.
#[derive(Debug, Default)]
pub(crate) struct CompletionQueue {
    pub(crate) done: VecDeque<Completion>,
    pub(crate) failed: VecDeque<Failure>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counter {
    pub(crate) done: u64,
    pub(crate) failed: u64,
}
