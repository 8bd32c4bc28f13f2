//! Repeatable randomness: `COSWITCH_SEED` sets the seed, and a failing test shows its seed.

use std::{
    env,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

pub use coswitch_sim::Seed;

/// The seed of a test, printed to standard error, which the test harness shows if the test fails.
///
/// # Panics
/// If `COSWITCH_SEED` is not a number.
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

/// A random span up to `longest`. Half of all spans are below a tenth of `longest`, because programs start,
/// restore and synchronise early.
pub fn span(seed: &mut Seed, longest: Duration) -> Duration {
    let longest = if seed.chance(500) { longest / 10 } else { longest };
    Duration::from_micros(seed.between(0, u64::try_from(longest.as_micros()).unwrap_or(u64::MAX)))
}
