//! The payload of an incoming record, until its rank has it.

use std::ops::Range;

use coswitch_ring::{Lease, SharedBytes};

pub(crate) enum Incoming {
    /// In a slab chunk, where the rank will find it.
    Leased(Lease),
    /// In the daemon: the rank cannot take it now, or its application has ended.
    Heap(Vec<u8>),
}

/// Where bytes are to go.
pub(crate) enum Place<'a> {
    Own(&'a mut [u8]),
    Shared(SharedBytes<'a>),
}

impl Incoming {
    pub(crate) fn heap(length: usize) -> Self {
        Self::Heap(vec![0; length])
    }

    /// Panics where the range is not inside it.
    pub(crate) fn place(&mut self, Range { start, end }: Range<usize>) -> Place<'_> {
        match self {
            Self::Heap(bytes) => Place::Own(&mut bytes[start..end]),
            Self::Leased(lease) => Place::Shared(lease.bytes().first(end).skip(start)),
        }
    }

    /// A copy of the first bytes. Panics where there are fewer.
    pub(crate) fn first(&self, length: usize) -> Vec<u8> {
        match self {
            Self::Heap(bytes) => bytes[..length].to_vec(),
            Self::Leased(lease) => lease.bytes().first(length).to_vec(),
        }
    }
}

impl Place<'_> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Own(place) => place.len(),
            Self::Shared(place) => place.len(),
        }
    }

    /// Copies to its beginning. Panics where it is shorter.
    pub(crate) fn fill(self, bytes: &[u8]) {
        match self {
            Self::Own(place) => place[..bytes.len()].copy_from_slice(bytes),
            Self::Shared(place) => place.first(bytes.len()).copy_from(bytes),
        }
    }
}
