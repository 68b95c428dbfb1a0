//! The one source of random numbers: seeded, so that a run's order and intervals can be repeated.

/// A small seeded generator (SplitMix64, Steele, Lea and Flood 2014). Not for secrets.
#[derive(Clone, Debug)]
pub(crate) struct Generator {
    state: u64,
}

impl Generator {
    /// A generator that gives the same numbers for the same seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 bits.
    pub(crate) fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which must not be 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        // The high half of a wide product: a bias of bound / 2^64, nothing at the sizes used here.
        ((u128::from(self.bits()) * bound as u128) >> 64) as usize
    }

    /// Brings the items into a random order (Fisher and Yates).
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_the_published_numbers() {
        let mut generator = Generator::new(1_234_567);
        let first: Vec<u64> = (0..3).map(|_| generator.bits()).collect();
        assert_eq!(
            first,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn stays_below_the_bound_and_reaches_every_number() {
        let mut generator = Generator::new(7);
        let mut seen = [0_u32; 5];
        (0..1000).for_each(|_| seen[generator.below(5)] += 1);
        assert!(seen.iter().all(|&count| count > 120), "{seen:?}");
    }

    #[test]
    fn shuffling_keeps_the_items_and_gives_every_order() {
        let mut generator = Generator::new(3);
        let mut orders = std::collections::BTreeSet::new();
        for _ in 0..200 {
            let mut items = [1, 2, 3];
            generator.shuffle(&mut items);
            orders.insert(items);
        }
        assert_eq!(orders.len(), 6);
        assert!(orders.iter().all(|order| order.iter().sum::<i32>() == 6));
    }
}
