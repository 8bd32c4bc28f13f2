//! Random numbers by seed: `SplitMix64` (Steele, Lea and Flood 2014). Its sequence is fixed for good, unlike
//! that of a library's default generator.

#[derive(Clone, Debug)]
pub struct Seed(u64);

impl Seed {
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `low..=high`; `low` where that is empty. The bias of the remainder is negligible here.
    pub const fn between(&mut self, low: u64, high: u64) -> u64 {
        let n = self.next_u64();
        if high <= low { low } else { low + n % (high - low + 1) }
    }

    /// True `per_mille` times in a thousand.
    pub const fn chance(&mut self, per_mille: u32) -> bool {
        self.between(0, 999) < per_mille as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_that_of_the_publication() {
        let mut seed = Seed::new(1_234_567);
        let first = [seed.next_u64(), seed.next_u64(), seed.next_u64()];
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn numbers_stay_between_their_bounds() {
        let mut seed = Seed::new(7);
        assert!((0..1000).all(|_| (3..=9).contains(&seed.between(3, 9))));
        assert_eq!(seed.between(5, 5), 5);
        assert!(!seed.chance(0) && seed.chance(1000));
    }
}
