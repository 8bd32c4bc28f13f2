//! The one driver of this process, opened from what the launcher put into the environment.

use crate::engine::SharedEngine;
use coswitch_ring::Segment;
use std::sync::{Arc, OnceLock};

/// Path of the segment.
const SEGMENT: &str = "COSWITCH_SEGMENT";
/// Local index of this rank.
const LOCAL: &str = "COSWITCH_LOCAL";

static ENGINE: OnceLock<Option<SharedEngine>> = OnceLock::new();

/// The driver, or `None` in a process that coswitch did not launch.
pub(crate) fn engine() -> Option<&'static SharedEngine> {
    ENGINE.get_or_init(open).as_ref()
}

fn open() -> Option<SharedEngine> {
    let path = std::env::var_os(SEGMENT)?;
    let local = std::env::var(LOCAL).unwrap_or_default();
    open_at(&path, &local).inspect_err(|reason| eprintln!("coswitch: no driver: {reason}")).ok()
}

fn open_at(path: &std::ffi::OsStr, local: &str) -> Result<SharedEngine, String> {
    let local: u32 = local.parse().map_err(|_| format!("{LOCAL}={local} is no local index"))?;
    let segment = Segment::open(path).map_err(|error| error.to_string())?;
    if local >= segment.local_ranks() {
        return Err(format!("{LOCAL}={local}, but the segment has {} local ranks", segment.local_ranks()));
    }
    Ok(SharedEngine::new(Arc::new(segment), local))
}
