//! Fields of the kernel's text files.

use coswitch_policies::Bytes;

/// The value of a line `NAME VALUE`, as in `memory.stat`.
pub(crate) fn counter(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    value.trim().parse().ok()
}

/// The value of a line `NAME: VALUE kB`, as in `/proc/meminfo`.
#[must_use]
pub fn size(text: &str, name: &str) -> Option<Bytes> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| Bytes(kib << 10))
}

/// The letter for the state of a thread, from the text of its `/proc/ID/stat`.
pub(crate) fn state(stat: &str) -> Option<char> {
    // The name of the program is in brackets, and may hold any character.
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// The [`state`] of a thread that is on a processor or waits for one.
pub(crate) const WANTS_PROCESSOR: char = 'R';

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_found_by_its_whole_name() {
        let stat = "total_swap 7\nswap 40\npgmajfault 3\n";
        assert_eq!((counter(stat, "swap"), counter(stat, "pgmajfault")), (Some(40), Some(3)));
        assert_eq!(counter(stat, "pgmajfaul"), None);
    }

    #[test]
    fn a_state_is_found_after_any_name() {
        assert_eq!(state("7 (a) b) S 1 7 7 0 -1"), Some('S'));
        assert_eq!(state("7 (a R 1"), None);
    }

    #[test]
    fn a_size_is_in_kibibytes() {
        let text = "SwapCached:            1 kB\nSwapTotal:       2097148 kB\nSwapFree:        12 kB\n";
        assert_eq!(size(text, "SwapTotal"), Some(Bytes(2_097_148 << 10)));
        assert_eq!(size(text, "SwapFree"), Some(Bytes(12 << 10)));
        assert_eq!(size("MemTotal: 1 kB\n", "SwapTotal"), None);
    }
}
