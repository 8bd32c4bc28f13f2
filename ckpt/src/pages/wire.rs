//! Decoder of CRIU's page-server protocol, by which it sends pages instead of writing them. Pure.
//!
//! ```text
//! header: u32 command, and flags above its 16 bits │ u32 unused │ u64 pages │ u64 address │ u64 owner
//! OPEN  ──▶        pages of an owner begin    ◀── one byte: is there a parent image
//! ADD   ──▶ pages * 4096 bytes of memory
//! CLOSE ──▶        end of the dump            ◀── u32: status
//! ```

/// Bytes of a page.
pub(crate) const PAGE: usize = 4096;
pub(super) const HEADER: usize = 32;

const ADD_WITH_FLAGS: u32 = 6;
const OPEN: u32 = 4;
const CLOSE: u32 = 0x1023;
const FORCE_CLOSE: u32 = 0x1024;
const COMMAND_BITS: u32 = 16;
const OWNER_KIND_BITS: u32 = 8;
const FLAG_LAZY: u32 = 1 << 1;
/// A header that claims more pages is not a valid one.
const PAGES_MAX: u64 = 1 << 36;

/// The owner of pages, with the number that CRIU uses in the names of its images.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Owner {
    /// Private memory of the process with that id in its own namespace.
    Process(u32),
    /// Memory that processes share.
    Shared(u64),
}

/// Consecutive pages of one owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageRun {
    pub(super) owner: Owner,
    pub(super) address: u64,
    pub(super) pages: u64,
    /// Private and anonymous: a process can be restored without these pages and get them afterwards.
    pub(super) lazy: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// Wants an answer of one byte.
    Open(Owner),
    /// Is followed by the pages.
    Add(PageRun),
    /// Wants an answer of four bytes.
    Close,
}

/// Decodes the header of a command; `None` if this version of the protocol does not have it.
pub(super) fn decode(header: &[u8; HEADER]) -> Option<Command> {
    let word = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes were taken"));
    let command = word(0) as u32;
    let owner = || match word(24) & ((1 << OWNER_KIND_BITS) - 1) {
        1 => u32::try_from(word(24) >> OWNER_KIND_BITS).ok().map(Owner::Process),
        2 => Some(Owner::Shared(word(24) >> OWNER_KIND_BITS)),
        _ => None,
    };
    match command & ((1 << COMMAND_BITS) - 1) {
        OPEN => owner().map(Command::Open),
        ADD_WITH_FLAGS if word(8) <= PAGES_MAX && word(16).is_multiple_of(PAGE as u64) => {
            let lazy = command >> COMMAND_BITS & FLAG_LAZY != 0;
            Some(Command::Add(PageRun { owner: owner()?, address: word(16), pages: word(8), lazy }))
        }
        CLOSE | FORCE_CLOSE => Some(Command::Close),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(command: u32, pages: u64, address: u64, owner: u64) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..4].copy_from_slice(&command.to_le_bytes());
        for (at, word) in [(8, pages), (16, address), (24, owner)] {
            bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn a_run_of_pages_is_decoded_with_its_owner_address_and_kind() {
        let run = PageRun { owner: Owner::Process(7), address: 0x7000, pages: 3, lazy: true };
        assert_eq!(decode(&header(6 << 16 | 6, 3, 0x7000, 7 << 8 | 1)), Some(Command::Add(run)));
        let run = PageRun { owner: Owner::Shared(9), address: 0, pages: 1, lazy: false };
        assert_eq!(decode(&header(4 << 16 | 6, 1, 0, 9 << 8 | 2)), Some(Command::Add(run)));
    }

    #[test]
    fn headers_that_are_not_valid_are_refused() {
        assert_eq!(decode(&header(0x1024, 0, 0, 0)), Some(Command::Close));
        assert_eq!(decode(&header(4, 0, 0, 3 << 8 | 1)), Some(Command::Open(Owner::Process(3))));
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
