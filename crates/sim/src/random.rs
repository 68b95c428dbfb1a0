//! The random generator, which depends only on its seed.

/// SplitMix64 (Steele, Lea, Flood 2014): a counter and a mixing function. Any seed is good.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// Creates a generator from a seed.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Returns 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.state)
    }

    /// Returns a number below `limit`, or zero if `limit` is zero.
    #[inline]
    pub fn below(&mut self, limit: u64) -> u64 {
        // The high half of a product. Its bias is below limit / 2^64.
        ((u128::from(self.bits()) * u128::from(limit)) >> 64) as u64
    }

    /// Returns a number from `low` to `high`, both included.
    #[inline]
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below((high - low).saturating_add(1))
    }

    /// Returns true with a probability of `per_mille` in a thousand. Draws nothing if the result is
    /// certain.
    #[inline]
    pub fn chance(&mut self, per_mille: u16) -> bool {
        match per_mille {
            0 => false,
            1000.. => true,
            _ => self.below(1000) < u64::from(per_mille),
        }
    }

    /// Returns one of `choices`.
    ///
    /// # Panics
    /// Panics if `choices` is empty.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

/// Mixes the bits of `word`, so that each affects the whole result.
#[inline]
pub(crate) fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_gives_the_same_sequence() {
        let draw = |seed| {
            let mut random = Random::new(seed);
            (0..100).map(|_| random.bits()).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn between_stays_in_range_and_reaches_both_ends() {
        let mut random = Random::new(1);
        let drawn: Vec<u64> = (0..1000).map(|_| random.between(3, 7)).collect();
        assert_eq!((drawn.iter().min(), drawn.iter().max()), (Some(&3), Some(&7)));
        assert_eq!(random.below(0), 0);
    }

    #[test]
    fn chance_has_the_given_probability() {
        let mut random = Random::new(2);
        let hits = (0..100_000).filter(|_| random.chance(100)).count();
        assert!((9_000..11_000).contains(&hits), "{hits} of 100000 at 100 per mille");
        assert!(!random.chance(0) && random.chance(1000));
    }
}
