//! Every input that was ever kept, and random changes of them, on all targets.

use std::panic::{AssertUnwindSafe, catch_unwind};

use coswitch_fuzz::{TARGETS, Target, corpus};
use coswitch_sim::Seed;

/// Changes of each input. Guided runs try millions: `cargo xtask fuzz`.
const CHANGES: u32 = 200;

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

#[test]
fn every_target_survives_its_corpus_and_changes_of_it() {
    let seed = match std::env::var("COSWITCH_SEED") {
        Ok(text) => text.parse().expect("COSWITCH_SEED is a number"),
        Err(_) => u64::from(std::process::id()),
    };
    eprintln!("repeat with COSWITCH_SEED={seed}");
    let mut random = Seed::new(seed);
    for target in &TARGETS {
        let inputs = corpus(target);
        assert!(!inputs.is_empty(), "{}", target.name);
        for (index, bytes) in inputs.iter().enumerate() {
            survives(target, bytes);
            for _ in 0..CHANGES {
                let other = &inputs[(index + 1) % inputs.len()];
                survives(target, &changed(bytes, other, &mut random));
            }
        }
    }
}
