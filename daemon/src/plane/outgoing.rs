//! A part of what goes over a link: the daemon's own bytes, or a payload where a rank has put it.

use coswitch_ring::SharedBytes;

#[derive(Clone, Copy)]
pub(crate) enum Part<'a> {
    Own(&'a [u8]),
    /// The rank may still change it.
    Shared(SharedBytes<'a>),
}

impl Part<'_> {
    pub(crate) fn len(self) -> usize {
        match self {
            Self::Own(bytes) => bytes.len(),
            Self::Shared(bytes) => bytes.len(),
        }
    }

    /// The same without its first bytes.
    pub(crate) fn skip(self, count: usize) -> Self {
        match self {
            Self::Own(bytes) => Self::Own(&bytes[count..]),
            Self::Shared(bytes) => Self::Shared(bytes.skip(count)),
        }
    }

    /// Appends the first `count` bytes to `to`.
    pub(crate) fn append_first(self, count: usize, to: &mut Vec<u8>) {
        match self {
            Self::Own(bytes) => to.extend_from_slice(&bytes[..count]),
            Self::Shared(bytes) => bytes.first(count).append_to(to),
        }
    }
}
