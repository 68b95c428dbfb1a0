//! Searches with a server in virtual time, whose capacity is known, and which is disturbed: how well do they repeat?

use super::*;
use crate::recording::Latencies;
use fastrand::Rng;

/// A server that takes one request after the other.
#[derive(Clone, Copy)]
struct Server {
    /// Requests a second.
    capacity: f64,
    /// How often it freezes, a second.
    freezes: f64,
    /// The longest freeze, in seconds: lengths are uniform.
    longest: f64,
    /// By how much its capacity differs from window to window, at most.
    drift: f64,
}

impl Server {
    /// The response times in ns of the requests of a window that are answered within it, at equal distances.
    fn window(self, rate: f64, search: &RateSearch, random: &mut Rng) -> Vec<u64> {
        let (warm_up, end) =
            (search.window().as_secs_f64() * WARM_UP, search.window().as_secs_f64());
        let capacity = self.capacity * (1.0 + self.drift * (2.0 * random.f64() - 1.0));
        let exponential = |mean: f64, random: &mut Rng| -mean * (1.0 - random.f64()).ln();
        let (mut free, mut times) = (0.0_f64, Vec::new());
        let mut freeze = exponential(1.0 / self.freezes, random);
        for number in 0..(rate * end) as u64 {
            let due = number as f64 / rate;
            let begin = free.max(due);
            free = begin + exponential(1.0 / capacity, random);
            while freeze < free {
                free += self.longest * random.f64();
                freeze += exponential(1.0 / self.freezes, random);
            }
            if free >= warm_up && free < end {
                times.push(((free - due) * 1e9) as u64);
            }
        }
        times
    }

    /// The rate that a search finds.
    fn search(self, target: &str, random: &mut Rng) -> Option<f64> {
        let (target, time) = (target.parse().unwrap(), Duration::from_secs(30));
        let search = RateSearch { target, arrivals: Arrivals::Constant, time };
        let seconds = search.measured().as_secs_f64();
        let closed = self.capacity * (1.0 + self.drift * (2.0 * random.f64() - 1.0));
        let lowest = search.target.responses_needed() as f64 / seconds;
        let mut state = Search::new(closed, lowest, SEARCH_WINDOWS - 1);
        while let Next::Measure(rate) = state.next() {
            let times = self.window(rate, &search, random);
            let window = search.rate_window(rate, &total(&times, seconds));
            state.record(rate, window.missed.is_none());
        }
        state.rate()
    }
}

fn total(times: &[u64], seconds: f64) -> Interval {
    let response: Latencies = times.iter().copied().collect();
    Interval { answered: response.len(), response, ..Interval::new(0.0, seconds) }
}

/// The number of pairs of searches, one after the other, whose rates differ by less than 10 %.
fn pairs_that_agree(server: Server, target: &str, pairs: u64) -> u64 {
    let agrees = |seed: &u64| {
        let mut random = Rng::with_seed(*seed);
        let [one, other] = [(); 2].map(|()| server.search(target, &mut random));
        let (Some(one), Some(other)) = (one, other) else { return false };
        one.max(other) / one.min(other) < 1.1
    };
    (0..pairs).filter(agrees).count() as u64
}

const PAIRS: u64 = 40;

#[test]
fn searches_of_an_undisturbed_server_repeat() {
    let server = Server { capacity: 3000.0, freezes: 1e-9, longest: 0.0, drift: 0.01 };
    let agree = pairs_that_agree(server, "p99<10ms", PAIRS);
    assert!(agree >= PAIRS * 19 / 20, "{agree} of {PAIRS}");
}

#[test]
fn searches_of_a_disturbed_server_repeat() {
    let server = Server { capacity: 3000.0, freezes: 0.5, longest: 0.04, drift: 0.03 };
    let agree = pairs_that_agree(server, "p99<10ms", PAIRS);
    assert!(agree >= PAIRS * 19 / 20, "{agree} of {PAIRS}");
}

#[test]
fn the_rate_is_near_what_theory_says() {
    // In a queue with equal arrivals and exponential services, the share that waits longer than t is e^(-t × capacity × (1 - x)) with
    // x = e^(-(1 - x) × capacity ÷ rate): for 10 ms at 3000 a second that is 1 % at a load of 0.92. A window begins with an empty queue,
    // and one of four is enough, so somewhat more is found.
    let server = Server { capacity: 3000.0, freezes: 1e-9, longest: 0.0, drift: 0.0 };
    for seed in 0..10 {
        let rate = server.search("p99<10ms", &mut Rng::with_seed(seed)).unwrap();
        assert!((0.88..1.05).contains(&(rate / 3000.0)), "{rate} with seed {seed}");
    }
}
