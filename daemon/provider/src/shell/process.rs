//! The engine of this process, opened by the environment variables that the launcher sets.

use crate::engine::SharedEngine;
use coswitch_ring::Segment;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::{Arc, OnceLock};

/// The number of the open segment file. A path would not do: a rank that has not come here yet may be
/// restored on another node.
const SEGMENT: &str = "COSWITCH_SEGMENT";
const LOCAL: &str = "COSWITCH_LOCAL";

static ENGINE: OnceLock<Option<SharedEngine>> = OnceLock::new();

/// The engine; `None` in a process that coswitch did not launch.
pub(crate) fn engine() -> Option<&'static SharedEngine> {
    ENGINE.get_or_init(open).as_ref()
}

fn open() -> Option<SharedEngine> {
    let file = std::env::var(SEGMENT).ok()?;
    let local = std::env::var(LOCAL).unwrap_or_default();
    open_file(&file, &local).inspect_err(|reason| eprintln!("coswitch: no driver: {reason}")).ok()
}

fn open_file(file: &str, local: &str) -> Result<SharedEngine, String> {
    let number = file.parse::<RawFd>().ok().filter(|number| *number >= 0);
    let number = number.ok_or_else(|| format!("{SEGMENT}={file} is not the number of a file"))?;
    let local: u32 = local.parse().map_err(|_| format!("{LOCAL}={local} is not a local index"))?;
    // SAFETY: the number is not -1. The launcher has left the file open; where the program has closed it, the
    // calls on it fail, or what they find is not a segment.
    let file = unsafe { BorrowedFd::borrow_raw(number) };
    let segment = Segment::inherited(file).map_err(|error| error.to_string())?;
    if local >= segment.local_ranks() {
        return Err(format!("{LOCAL}={local}, but the segment has {} local ranks", segment.local_ranks()));
    }
    Ok(SharedEngine::new(Arc::new(segment), local))
}
