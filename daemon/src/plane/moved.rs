//! Result of one pass of the data plane over rings and links.

/// Ordered: the maximum of two results is the result of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Moved {
    Nothing,
    Something,
    /// A payload in a chunk: its receiver, perhaps on this core, should begin at once.
    Chunk,
}

impl Moved {
    pub(crate) fn some_if(moved: bool) -> Self {
        if moved { Self::Something } else { Self::Nothing }
    }

    pub(crate) fn note(&mut self, other: Self) {
        *self = (*self).max(other);
    }
}
