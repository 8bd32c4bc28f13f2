//! What CRIU says when it sends pages away instead of writing them (its page-server protocol). Pure.
//!
//! ```text
//! header: u32 command, and flags above its 16 bits │ u32 unused │ u64 pages │ u64 address │ u64 image
//! OPEN  ──▶        an image begins            ◀── one byte: is there a parent image
//! ADD   ──▶ pages * 4096 bytes of memory
//! CLOSE ──▶        that was all               ◀── u32: status
//! ```

/// Of the machines that the images are from.
pub(crate) const PAGE: usize = 4096;
pub(super) const HEADER: usize = 32;

const ADD_WITH_FLAGS: u32 = 6;
const OPEN: u32 = 4;
const CLOSE: u32 = 0x1023;
const FORCE_CLOSE: u32 = 0x1024;
const COMMAND_BITS: u32 = 16;
const IMAGE_KIND_BITS: u32 = 8;
const FLAG_LAZY: u32 = 1 << 1;
/// Nothing is larger; a header that claims more is no header.
const PAGES_MAX: u64 = 1 << 36;

/// Whose memory it is, by the number that CRIU gives it in names of images.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Image {
    /// Private memory of a process, by its id in its own namespace.
    Process(u32),
    /// Memory that processes share.
    Shared(u64),
}

/// A stretch of pages of one image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// Whose.
    pub(super) image: Image,
    /// Where it begins.
    pub(super) address: u64,
    /// How many pages.
    pub(super) pages: u64,
    /// Private and anonymous: a process can be restored without it, and be given it afterwards.
    pub(super) lazy: bool,
}

/// What CRIU wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// Answer with a byte.
    Open(Image),
    /// The pages follow.
    Add(Run),
    /// Answer with four bytes.
    Close,
}

/// The header of a command; `None` for what this version of the protocol does not have.
pub(super) fn decode(header: &[u8; HEADER]) -> Option<Command> {
    let word = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes were taken"));
    let command = word(0) as u32;
    let image = || match word(24) & ((1 << IMAGE_KIND_BITS) - 1) {
        1 => u32::try_from(word(24) >> IMAGE_KIND_BITS).ok().map(Image::Process),
        2 => Some(Image::Shared(word(24) >> IMAGE_KIND_BITS)),
        _ => None,
    };
    match command & ((1 << COMMAND_BITS) - 1) {
        OPEN => image().map(Command::Open),
        ADD_WITH_FLAGS if word(8) <= PAGES_MAX && word(16).is_multiple_of(PAGE as u64) => {
            let lazy = command >> COMMAND_BITS & FLAG_LAZY != 0;
            Some(Command::Add(Run { image: image()?, address: word(16), pages: word(8), lazy }))
        }
        CLOSE | FORCE_CLOSE => Some(Command::Close),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(command: u32, pages: u64, address: u64, image: u64) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..4].copy_from_slice(&command.to_le_bytes());
        for (at, word) in [(8, pages), (16, address), (24, image)] {
            bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn pages_are_announced_with_owner_place_and_kind() {
        let run = Run { image: Image::Process(7), address: 0x7000, pages: 3, lazy: true };
        assert_eq!(decode(&header(6 << 16 | 6, 3, 0x7000, 7 << 8 | 1)), Some(Command::Add(run)));
        let run = Run { image: Image::Shared(9), address: 0, pages: 1, lazy: false };
        assert_eq!(decode(&header(4 << 16 | 6, 1, 0, 9 << 8 | 2)), Some(Command::Add(run)));
    }

    #[test]
    fn what_is_no_command_is_refused() {
        assert_eq!(decode(&header(0x1024, 0, 0, 0)), Some(Command::Close));
        assert_eq!(decode(&header(4, 0, 0, 3 << 8 | 1)), Some(Command::Open(Image::Process(3))));
        for bad in [
            header(5, 1, 0, 1 << 8 | 1),
            header(4, 0, 0, 77),
            header(6, u64::MAX, 0, 1 << 8 | 1),
            header(6, 1, 5, 257),
        ] {
            assert_eq!(decode(&bad), None);
        }
    }
}
