//! Patience with a kernel that swaps. Where the pages of a group are all in use, version 1 gives up after a
//! few attempts to write some out, and kills a process although there is swap space. It need not: processes
//! wait in their page faults instead, and go on as soon as there is memory.

use std::time::{Duration, Instant};

use coswitch_policies::Bytes;

use super::memory::MemoryGroup;

/// With less swap space than this, waiting is of no use.
const SWAP_MIN: Bytes = Bytes::mib(16);
/// Where no memory has become free in so long a time, the kernel may kill.
const WAIT_LIMIT: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct Patience {
    since: Option<Instant>,
}

impl Patience {
    /// Says whether processes that find no memory in the group wait or die, by what it sees `now`.
    pub(super) fn look(&mut self, group: &MemoryGroup, free_swap: Bytes, now: Instant) {
        let Some((waits, is_full)) = group.waits_for_memory() else { return };
        let shall_wait = self.shall_wait(is_full, free_swap, now);
        if waits != shall_wait {
            group.wait_for_memory(shall_wait);
        }
    }

    fn shall_wait(&mut self, is_full: bool, free_swap: Bytes, now: Instant) -> bool {
        let since = is_full.then(|| self.since.unwrap_or(now));
        self.since = since;
        free_swap >= SWAP_MIN && since.is_none_or(|since| now.duration_since(since) < WAIT_LIMIT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_wait_while_there_is_swap_space_and_not_for_ever() {
        let (mut patience, now, plenty) = (Patience::default(), Instant::now(), Bytes::mib(512));
        assert!(!patience.shall_wait(false, Bytes(0), now), "there is nothing to wait for");
        assert!(patience.shall_wait(false, plenty, now));
        assert!(patience.shall_wait(true, plenty, now));
        assert!(patience.shall_wait(true, plenty, now + WAIT_LIMIT / 2));
        assert!(!patience.shall_wait(true, plenty, now + WAIT_LIMIT));
        assert!(
            patience.shall_wait(false, plenty, now + 2 * WAIT_LIMIT),
            "one has died, and the others go on"
        );
        assert!(patience.shall_wait(true, plenty, now + 3 * WAIT_LIMIT));
        assert!(!patience.shall_wait(true, Bytes::mib(1), now + 3 * WAIT_LIMIT));
    }
}
