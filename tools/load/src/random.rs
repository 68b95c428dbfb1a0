//! Random numbers. Each client has its own generator for each purpose, so that drawing from one
//! does not change the numbers of another.

use fastrand::Rng;

/// What the numbers are drawn for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    Arrivals,
    ThinkTime,
    Requests = 3,
}

/// Returns the generator of a client for a purpose. Equal seeds give equal numbers.
pub(crate) fn generator(seed: u64, client: usize, purpose: Purpose) -> Rng {
    // Each step passes the number so far through the generator, so that neighbouring clients have
    // unrelated numbers.
    let client = Rng::with_seed(seed).u64(..) ^ client as u64;
    Rng::with_seed(Rng::with_seed(client).u64(..) ^ purpose as u64)
}

/// Draws an exponentially distributed number with a mean of 1.
pub(crate) fn exponential(random: &mut Rng) -> f64 {
    // `f64` is below 1, so the logarithm is finite.
    -(1.0 - random.f64()).ln()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn generators_differ_by_client_and_purpose() {
        let mut seen = HashSet::new();
        for client in 0..1000 {
            for purpose in [Purpose::Arrivals, Purpose::ThinkTime, Purpose::Requests] {
                assert!(seen.insert(generator(1, client, purpose).u64(..)));
            }
        }
        let again = |seed| generator(seed, 3, Purpose::ThinkTime).u64(..);
        assert!(again(1) == again(1) && again(1) != again(2));
    }

    #[test]
    fn exponential_matches_mean_and_median() {
        let mut random = generator(1, 0, Purpose::Arrivals);
        let mut drawn: Vec<f64> = (0..100_000).map(|_| exponential(&mut random)).collect();
        let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
        assert!((0.98..1.02).contains(&mean), "{mean}");
        drawn.sort_by(f64::total_cmp);
        let median = drawn[drawn.len() / 2];
        assert!((0.67..0.72).contains(&median), "{median}");
    }
}
