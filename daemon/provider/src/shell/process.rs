//! The engine of this process, opened by the environment variables that the launcher sets.

use crate::engine::SharedEngine;
use coswitch_ring::Segment;
use std::sync::{Arc, OnceLock};

const SEGMENT: &str = "COSWITCH_SEGMENT";
const LOCAL: &str = "COSWITCH_LOCAL";

static ENGINE: OnceLock<Option<SharedEngine>> = OnceLock::new();

/// The engine; `None` in a process that coswitch did not launch.
pub(crate) fn engine() -> Option<&'static SharedEngine> {
    ENGINE.get_or_init(open).as_ref()
}

fn open() -> Option<SharedEngine> {
    let path = std::env::var_os(SEGMENT)?;
    let local = std::env::var(LOCAL).unwrap_or_default();
    open_at(&path, &local).inspect_err(|reason| eprintln!("coswitch: no driver: {reason}")).ok()
}

fn open_at(path: &std::ffi::OsStr, local: &str) -> Result<SharedEngine, String> {
    let local: u32 = local.parse().map_err(|_| format!("{LOCAL}={local} is not a local index"))?;
    let segment = Segment::open(path).map_err(|error| error.to_string())?;
    if local >= segment.local_ranks() {
        return Err(format!("{LOCAL}={local}, but the segment has {} local ranks", segment.local_ranks()));
    }
    Ok(SharedEngine::new(Arc::new(segment), local))
}
