//! Warms memory: touches pages that the jobs and their images will use.
//!
//! On a virtual machine the host backs a page when it is first touched, many times slower than a copy into
//! it. A machine that has run for a while has paid for that; one that was just started would show the host
//! and not coswitch.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

const PIECE: usize = 64 << 20;
const PAGE: usize = 4096;
/// The working sets of all jobs of the demo, and as much for their images.
const WARM: usize = 5 << 30;
/// A demo on memory that is not warm is slower, and right.
const LIMIT: Duration = Duration::from_secs(40);

pub(super) fn memory() {
    let began = Instant::now();
    let mut touched = Vec::new();
    while touched.len() * PIECE < WARM && began.elapsed() < LIMIT {
        let mut piece = vec![0u8; PIECE];
        piece.iter_mut().step_by(PAGE).for_each(|byte| *byte = 1);
        touched.push(black_box(piece));
    }
    let mib = (touched.len() * PIECE) >> 20;
    println!("warmed {mib} MiB of memory in {:.1} s", began.elapsed().as_secs_f64());
}
