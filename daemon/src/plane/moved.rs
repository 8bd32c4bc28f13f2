//! What one look at rings and links has moved.

/// Ordered, so that the larger of two is what both together have moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Moved {
    Nothing,
    Something,
    /// A payload in a chunk: whoever works on it next, perhaps on this core, should begin at once.
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
