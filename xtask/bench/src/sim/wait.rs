//! How long the processor waits for memory: what it adds to an event grows as the state of a cluster outgrows each cache.

use std::hint::black_box;

use anyhow::Result;

use super::processor_time;
use crate::figure::Figure;

/// About what the scheduler and the nodes of 1,000 and of 50,000 nodes take, at one row.
const SMALL: usize = 512 << 10;
const LARGE: usize = 16 << 20;
const READS: u32 = 4_000_000;

/// One line of a cache, and which is read next.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(usize);

/// How much longer one takes than the other.
pub(super) fn measure() -> Result<Figure> {
    let (small, large) = (read_ns(SMALL)?, read_ns(LARGE)?);
    Ok(Figure::plain(
        "growth of the wait for a read, from the state of 1,000 nodes to that of 50,000",
        large / small,
        "x",
    )
    .of(format!("{small:.1} ns within {} KiB, {large:.1} ns within {} KiB", SMALL >> 10, LARGE >> 10)))
}

/// A read that has to wait for the one before it, anywhere within so many bytes.
fn read_ns(bytes: usize) -> Result<f64> {
    let mut lines: Vec<Line> = (0..bytes / size_of::<Line>()).map(Line).collect();
    // Sattolo's shuffle: one circle through all lines.
    let mut random = 7_u64;
    for last in (1..lines.len()).rev() {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        #[allow(clippy::cast_possible_truncation, reason = "any bits do")]
        let other = (random >> 33) as usize % last;
        lines.swap(last, other);
    }
    let mut at = 0;
    let mut took = 0.0;
    for _warm in [false, true] {
        let began = processor_time()?;
        (0..READS).for_each(|_| at = lines[at].0);
        took = (processor_time()? - began).as_secs_f64();
    }
    black_box(at);
    Ok(took * 1e9 / f64::from(READS))
}
