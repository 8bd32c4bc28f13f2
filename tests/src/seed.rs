//! Randomness that can be repeated: `COSWITCH_SEED` names the seed, and a failing test shows the one it had.

use std::{
    env,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

pub use coswitch_sim::Seed;

/// The seed of a test, told on standard error, which is shown where the test fails.
///
/// # Panics
/// Where `COSWITCH_SEED` is no number.
#[must_use]
pub fn seed() -> Seed {
    let number = match env::var("COSWITCH_SEED") {
        Ok(text) => text.parse().expect("COSWITCH_SEED is a number"),
        Err(_) => {
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::from(since.subsec_nanos()))
        }
    };
    eprintln!("repeat with COSWITCH_SEED={number}");
    Seed::new(number)
}

/// A span of at most `longest`. Short ones are as likely as long ones: half of all spans lie below a tenth of the
/// longest, where programs start, restore and meet each other.
pub fn span(seed: &mut Seed, longest: Duration) -> Duration {
    let longest = if seed.chance(500) { longest / 10 } else { longest };
    Duration::from_micros(seed.between(0, u64::try_from(longest.as_micros()).unwrap_or(u64::MAX)))
}
