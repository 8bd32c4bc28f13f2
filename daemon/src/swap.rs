//! Swap space of this machine; parking by page-out needs it.

use std::fs;

use coswitch_policies::Bytes;

use crate::proc_text;

/// Shell commands that add swap space.
pub const ADVICE: &str =
    "fallocate -l 8G /var/swap && chmod 600 /var/swap && mkswap /var/swap && swapon /var/swap";

/// The size of all swap space; 0 where there is none.
pub fn configured() -> Bytes {
    meminfo("SwapTotal")
}

pub fn free() -> Bytes {
    meminfo("SwapFree")
}

/// A field that is missing counts as 0.
fn meminfo(field: &str) -> Bytes {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    proc_text::size(&text, field).unwrap_or(Bytes(0))
}
