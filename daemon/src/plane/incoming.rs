//! The payload of an incoming record, until its rank has it.

use coswitch_ring::Lease;

pub(crate) enum Incoming {
    /// In a slab chunk, where the rank will find it.
    Leased(Lease),
    /// In the daemon: the rank cannot take it now, or its application has ended.
    Heap(Vec<u8>),
}

impl Incoming {
    pub(crate) fn heap(length: usize) -> Self {
        Self::Heap(vec![0; length])
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Heap(bytes) => bytes,
            Self::Leased(lease) => lease.bytes_mut(),
        }
    }
}
