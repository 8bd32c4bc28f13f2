//! Every input that was ever kept, and random changes of them, on all targets.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use coswitch_fuzz::{TARGETS, Target, corpus};
use coswitch_sim::Seed;

/// Changes of each input, at least.
const CHANGES: u64 = 200;
/// The time for each target, at least. Guided runs go further: `cargo xtask fuzz`.
const TIME: Duration = Duration::from_secs(10);

fn survives(target: &Target, bytes: &[u8]) {
    let read = catch_unwind(AssertUnwindSafe(|| (target.read)(bytes)));
    assert!(read.is_ok(), "{} does not survive {bytes:?}", target.name);
}

/// Some bytes changed, or the input cut, doubled, or joined with another one.
fn changed(bytes: &[u8], other: &[u8], random: &mut Seed) -> Vec<u8> {
    let mut below = |limit: usize| random.between(0, limit.max(1) as u64 - 1) as usize;
    let mut result = bytes.to_vec();
    match below(6) {
        0 => result.truncate(below(bytes.len())),
        1 => result.extend_from_slice(bytes),
        2 => {
            result.truncate(below(bytes.len()));
            result.extend_from_slice(&other[below(other.len())..]);
        }
        _ => {}
    }
    for _ in 0..below(8) {
        let at = below(result.len());
        if let Some(byte) = result.get_mut(at) {
            *byte = [0, 1, 0x7f, 0x80, 0xff, *byte ^ 1 << below(8), below(256) as u8][below(7)];
        }
    }
    result
}

/// Tries all inputs and then changes of them. Returns how many were tried.
fn search(target: &Target, mut random: Seed) -> u64 {
    let inputs = corpus(target);
    assert!(!inputs.is_empty(), "{}", target.name);
    inputs.iter().for_each(|bytes| survives(target, bytes));
    let began = Instant::now();
    let mut changes = 0;
    while changes < CHANGES || began.elapsed() < TIME {
        for (index, bytes) in inputs.iter().enumerate() {
            let other = &inputs[(index + 1) % inputs.len()];
            survives(target, &changed(bytes, other, &mut random));
        }
        changes += 1;
    }
    (1 + changes) * inputs.len() as u64
}

#[test]
fn every_target_survives_its_corpus_and_changes_of_it() {
    let seed = match std::env::var("COSWITCH_SEED") {
        Ok(text) => text.parse().expect("COSWITCH_SEED is a number"),
        Err(_) => u64::from(std::process::id()),
    };
    eprintln!("repeat with COSWITCH_SEED={seed}");
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(target) = TARGETS.get(next.fetch_add(1, Ordering::Relaxed)) {
            eprintln!("{}: {} inputs", target.name, search(target, Seed::new(seed)));
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().for_each(|worker| worker.join().expect("each target survives"));
    });
}
