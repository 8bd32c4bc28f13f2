//! Completion queues and counters: how operations report that they are done.

use super::address::Address;
use crate::abi::CqErrEntry;
use std::collections::VecDeque;
use std::ffi::c_void;

/// One finished operation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Completion {
    /// The caller's context pointer, as a number.
    pub(crate) context: usize,
    pub(crate) flags: u64,
    pub(crate) len: usize,
    pub(crate) buffer: usize,
    pub(crate) data: u64,
    pub(crate) tag: u64,
    /// Who sent the message, for receives.
    pub(crate) source: Option<Address>,
}

impl Completion {
    pub(crate) const EMPTY: Completion =
        Completion { context: 0, flags: 0, len: 0, buffer: 0, data: 0, tag: 0, source: None };
}

/// One failed operation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Failure {
    pub(crate) what: Completion,
    /// Bytes that did not fit.
    pub(crate) overflow: usize,
    /// Positive libfabric error number.
    pub(crate) error: i32,
}

impl Failure {
    pub(crate) fn new(what: Completion, error: i32) -> Failure {
        Failure { what, overflow: 0, error }
    }

    pub(crate) fn entry(&self) -> CqErrEntry {
        CqErrEntry {
            op_context: self.what.context as *mut c_void,
            flags: self.what.flags,
            len: self.what.len,
            buf: self.what.buffer as *mut c_void,
            data: self.what.data,
            tag: self.what.tag,
            olen: self.overflow,
            err: self.error,
            prov_errno: 0,
        }
    }
}

/// A completion queue. Failures are reported before anything else.
#[derive(Debug, Default)]
pub(crate) struct CompletionQueue {
    pub(crate) done: VecDeque<Completion>,
    pub(crate) failed: VecDeque<Failure>,
}

/// A counter of completions, and of failures.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counter {
    pub(crate) done: u64,
    pub(crate) failed: u64,
}
