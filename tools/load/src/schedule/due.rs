//! The due times of one client in an open loop.

use super::{Arrivals, Rate};
use crate::random::{Purpose, exponential, generator};
use fastrand::Rng;

/// With Poisson arrivals or groups, at most this many requests are skipped one by one.
const MAX_STEPS: u64 = 1_000_000;

/// The successive due times of one client.
///
/// All clients together follow the arrivals of the schedule. With constant arrivals, the clients
/// alternate. With Poisson arrivals, each client has a Poisson process with its share of the rate,
/// and their sum is a Poisson process with the whole rate. With bursts, the requests of all clients
/// are due at multiples of the same period. In groups, consecutive requests are due together: one
/// from each of several clients, or all from one client.
#[derive(Debug)]
pub(super) struct DueTimes {
    rate: Rate,
    arrivals: Arrivals,
    random: Rng,
    /// The start of the schedule, in nanoseconds on [`crate::clock`].
    origin: u64,
    clients: f64,
    /// Number of requests of all clients that are due before this client's next request.
    count: f64,
    next: u64,
}

impl DueTimes {
    /// Creates the due times of `client`, out of `clients`, starting at `origin`.
    pub(super) fn new(
        rate: Rate,
        arrivals: Arrivals,
        [client, clients]: [usize; 2],
        seed: u64,
        origin: u64,
    ) -> DueTimes {
        let random = generator(seed, client, Purpose::Arrivals);
        let clients = clients as f64;
        let mut due = DueTimes { rate, arrivals, random, origin, clients, count: 0.0, next: 0 };
        match arrivals {
            Arrivals::Together { requests, on_one_connection: true } => {
                due.advance_by(client as f64 * f64::from(requests));
            }
            Arrivals::Constant | Arrivals::Burst(_) | Arrivals::Together { .. } => {
                due.advance_by(client as f64);
            }
            Arrivals::Poisson => due.advance(),
        }
        due
    }

    /// Returns when the next request is due.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Advances to the next request.
    pub(super) fn advance(&mut self) {
        match self.arrivals {
            Arrivals::Together { requests, on_one_connection: true } => {
                let (size, next) = (f64::from(requests), self.count + 1.0);
                // After this client's group, the groups of all other clients come first.
                let others = if next % size == 0.0 { size * (self.clients - 1.0) } else { 0.0 };
                self.advance_by(1.0 + others);
            }
            Arrivals::Constant | Arrivals::Burst(_) | Arrivals::Together { .. } => {
                self.advance_by(self.clients);
            }
            Arrivals::Poisson => {
                let distance = exponential(&mut self.random);
                self.advance_by(self.clients * distance);
            }
        }
    }

    /// Skips the requests that are due at `end` or before, and returns their number. With Poisson
    /// arrivals or groups, the number is an estimate if it exceeds [`MAX_STEPS`].
    pub(super) fn skip_until(&mut self, end: u64) -> u64 {
        let is_regular = matches!(self.arrivals, Arrivals::Constant | Arrivals::Burst(_));
        let mut skipped = if is_regular { self.skip_most_until(end) } else { 0 };
        while self.next <= end {
            if !is_regular && skipped == MAX_STEPS {
                return skipped + self.skip_most_until(end);
            }
            self.advance();
            skipped += 1;
        }
        skipped
    }

    /// Skips as many requests as are due until `end` at the mean interval, except the last one, and
    /// returns their number.
    fn skip_most_until(&mut self, end: u64) -> u64 {
        let since = end.saturating_sub(self.origin);
        let since = match self.arrivals {
            Arrivals::Burst(every) => since - since % every.as_nanos() as u64,
            Arrivals::Constant | Arrivals::Poisson | Arrivals::Together { .. } => since,
        };
        let due = since as f64 / 1e9 * self.rate.per_second();
        // Rounding may place the last request after `end`, so it is not skipped here.
        let count = ((due - self.count) / self.clients).floor() - 1.0;
        if count <= 0.0 {
            return 0;
        }
        self.advance_by(self.clients * count);
        count as u64
    }

    fn advance_by(&mut self, requests: f64) {
        self.count += requests;
        let count = match self.arrivals {
            Arrivals::Together { requests, .. } => self.count - self.count % f64::from(requests),
            _ => self.count,
        };
        let seconds = self.rate.time_of(count);
        // Converting infinity gives the largest number.
        let since = (seconds * 1e9) as u64;
        let since = match self.arrivals {
            Arrivals::Burst(every) => {
                since.checked_next_multiple_of(every.as_nanos() as u64).unwrap_or(u64::MAX)
            }
            Arrivals::Constant | Arrivals::Poisson | Arrivals::Together { .. } => since,
        };
        self.next = self.origin.saturating_add(since);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    /// Returns the due times of all clients within some seconds, sorted.
    fn within(seconds: u64, rate: Rate, arrivals: Arrivals, clients: usize) -> Vec<u64> {
        let mut times = Vec::new();
        for client in 0..clients {
            let mut due = DueTimes::new(rate, arrivals, [client, clients], 7, 0);
            while due.next() < seconds * 1_000_000_000 {
                times.push(due.next());
                due.advance();
            }
        }
        times.sort_unstable();
        times
    }

    #[test]
    fn constant_arrivals_alternate_between_clients() {
        let times = within(1, Rate::constant(10.0), Arrivals::Constant, 3);
        let expected: Vec<_> = (0..10).map(|number| number * 100_000_000).collect();
        assert_eq!(times, expected);
    }

    #[test]
    fn skipping_counts_the_requests_that_are_due() {
        let rates = [0.3, 7.0, 1234.5, 1e6];
        let burst = Arrivals::Burst(Duration::from_millis(3));
        let group = |on_one_connection| Arrivals::Together { requests: 7, on_one_connection };
        for (rate, arrivals) in rates.iter().flat_map(|rate| {
            [Arrivals::Constant, Arrivals::Poisson, burst, group(false), group(true)]
                .map(|arrivals| (*rate, arrivals))
        }) {
            for end in [0, 1, 2_999_999, 3_000_000, 1_000_000_000] {
                let new = || DueTimes::new(Rate::constant(rate), arrivals, [1, 3], 7, 0);
                let (mut one, mut other, mut count) = (new(), new(), 0);
                while one.next() <= end {
                    one.advance();
                    count += 1;
                }
                assert_eq!(other.skip_until(end), count, "{rate} {arrivals:?} until {end}");
                assert_eq!(other.next(), one.next(), "{rate} {arrivals:?} until {end}");
            }
        }
        let (rate, end) = (Rate::constant(1e8), 60_000_000_000);
        let mut many = DueTimes::new(rate, Arrivals::Poisson, [0, 1], 7, 0);
        let skipped = many.skip_until(end) as f64;
        assert!((skipped / 6e9 - 1.0).abs() < 1e-3, "{skipped}");
    }

    #[test]
    fn groups_of_requests_are_due_together_on_one_client_or_on_many() {
        for on_one_connection in [false, true] {
            let arrivals = Arrivals::Together { requests: 4, on_one_connection };
            let rate = Rate::constant(1000.0);
            let times = within(1, rate, arrivals, 5);
            let expected: Vec<_> = (0..1000).map(|number| number / 4 * 4_000_000).collect();
            assert_eq!(times, expected);
            let mut one = DueTimes::new(rate, arrivals, [1, 5], 7, 0);
            let first = [(); 6].map(|()| {
                let next = one.next();
                one.advance();
                next / 4_000_000
            });
            // The second client has the requests 1, 6, 11 and so on, or the groups 1, 6 and so on.
            let expected = if on_one_connection { [1, 1, 1, 1, 6, 6] } else { [0, 1, 2, 4, 5, 6] };
            assert_eq!(first, expected);
        }
    }

    #[test]
    fn requests_of_a_burst_are_due_together() {
        let burst = Arrivals::Burst(Duration::from_millis(2));
        let times = within(1, Rate::constant(1500.0), burst, 7);
        // Each burst has three requests, except the first one, which has one.
        let mut counts = vec![0; 500];
        for time in times {
            assert_eq!(time % 2_000_000, 0);
            counts[time as usize / 2_000_000] += 1;
        }
        assert_eq!(counts[0], 1);
        assert!(counts[1..].iter().all(|&count| count == 3), "{counts:?}");
    }

    #[test]
    fn poisson_arrivals_match_rate_and_variance() {
        for clients in [1, 50] {
            let times = within(200, Rate::constant(100.0), Arrivals::Poisson, clients);
            let count = times.len() as f64;
            // Allow five standard deviations.
            assert!((count - 20_000.0).abs() < 5.0 * 20_000_f64.sqrt(), "{count}");
            // The counts per interval of a Poisson process have a variance equal to their mean.
            let mut counts = vec![0.0; 200];
            times.iter().for_each(|time| counts[(time / 1_000_000_000) as usize] += 1.0);
            let mean = count / 200.0;
            let variance =
                counts.iter().map(|count: &f64| (count - mean).powi(2)).sum::<f64>() / 199.0;
            assert!((0.6..1.5).contains(&(variance / mean)), "{}", variance / mean);
        }
    }

    proptest! {
        #[test]
        fn all_clients_together_match_the_rate(
            rate in 0.1_f64..300.0,
            clients in 1_usize..40,
        ) {
            let times = within(3, Rate::constant(rate), Arrivals::Constant, clients);
            for second in 0..3 {
                let in_second = second * 1_000_000_000..(second + 1) * 1_000_000_000_u64;
                let due = times.iter().filter(|time| in_second.contains(time)).count() as f64;
                prop_assert!((due - rate).abs() <= 1.0 + 1e-6, "{due} in second {second}, at {rate}");
            }
        }

        #[test]
        fn due_times_of_a_client_never_decrease(client in 0_usize..10, kind in 0_usize..3, rate in 0.1_f64..1e4) {
            let arrivals = [Arrivals::Constant, Arrivals::Poisson, Arrivals::Burst(Duration::from_micros(70))][kind];
            let mut due = DueTimes::new(Rate::constant(rate), arrivals, [client, 10], 1, 1000);
            let mut last = 1000;
            for _ in 0..100 {
                prop_assert!(due.next() >= last);
                last = due.next();
                due.advance();
            }
        }
    }
}
