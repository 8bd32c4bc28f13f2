//! What swap this machine has: parking by page-out needs it.

use std::fs;

use coswitch_policies::Bytes;

/// How to get some, where there is none.
pub const ADVICE: &str =
    "fallocate -l 8G /var/swap && chmod 600 /var/swap && mkswap /var/swap && swapon /var/swap";

/// The size of all swap in use on this machine; 0 where there is none.
#[must_use]
pub fn configured() -> Bytes {
    meminfo("SwapTotal:")
}

/// What of it is free.
#[must_use]
pub fn free() -> Bytes {
    meminfo("SwapFree:")
}

/// A field of `/proc/meminfo`; one that the kernel does not tell is 0.
fn meminfo(field: &str) -> Bytes {
    Bytes(find(&fs::read_to_string("/proc/meminfo").unwrap_or_default(), field).unwrap_or(0) << 10)
}

fn find(text: &str, field: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(field))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_is_the_field_of_that_name_in_kibibytes() {
        let text = "SwapCached:            1 kB\nSwapTotal:       2097148 kB\nSwapFree:        12 kB\n";
        assert_eq!(find(text, "SwapTotal:"), Some(2_097_148));
        assert_eq!(find(text, "SwapFree:"), Some(12));
        assert_eq!(find("MemTotal: 1 kB\n", "SwapTotal:"), None);
    }
}
