//! Shows, in virtual time, that an open loop detects a server that pauses, and that a closed loop
//! does not.
//!
//! The server answers within 20 µs, but freezes for the first 100 ms of each second. Requests that
//! are due during a freeze wait for its end, so a share of `(100 − x) / 1000` of all requests waits
//! more than `x` ms. Therefore p95 is 50 ms, p99 is 90 ms, and p99.9 is 99 ms.

use super::{Arrivals, Claim, Pacer, Rate, RequestTimes, Schedule};
use crate::outcome::Outcome;
use crate::recording::{Collector, Interval, Recorder};
use std::time::Duration;

const SECOND_NANOS: u64 = 1_000_000_000;
const FREEZE_NANOS: u64 = SECOND_NANOS / 10;
const SERVICE_NANOS: u64 = 20_000;
const CLIENT_COUNT: usize = 4;

/// Returns when the server has answered a request that was sent at this time.
fn answered(sent: u64) -> u64 {
    let phase = sent % SECOND_NANOS;
    if phase < FREEZE_NANOS {
        sent - phase + FREEZE_NANOS + SERVICE_NANOS
    } else {
        sent + SERVICE_NANOS
    }
}

/// Returns the figures that clients with one request in flight record in this many seconds.
fn record(schedule: &Schedule, seconds: u64) -> Interval {
    let time = Duration::from_secs(seconds);
    let collector = Collector::new(time, time, 0);
    let mut recorder = Recorder::new(&collector);
    recorder.open(0..0);
    for client in 0..CLIENT_COUNT {
        let mut pacer = Pacer::new(schedule, 1, [client, CLIENT_COUNT], 1, 0);
        let mut now = 0;
        while now < seconds * SECOND_NANOS {
            match pacer.claim(1, || now) {
                Claim::Send(_) => {
                    pacer.claimed(1).for_each(|times: &mut RequestTimes| recorder.sent(times));
                    now = answered(now);
                    let times = pacer.answer(now).unwrap();
                    recorder.answered(times, Outcome::Ok, now);
                }
                Claim::NotBefore(at) => now = at,
                Claim::Full => unreachable!("each request is answered before the next"),
            }
        }
    }
    recorder.finish();
    collector.finish(time, |_| ()).remove(0)
}

#[test]
fn open_loop_response_times_include_the_freeze() {
    for arrivals in [Arrivals::Constant, Arrivals::Poisson] {
        let recorded = record(&Schedule::Open { rate: Rate::constant(1000.0), arrivals }, 50);
        for (quantile, ms) in [(0.95, 50.0), (0.99, 90.0), (0.999, 99.0)] {
            let found = recorded.response.quantile(quantile) as f64 / 1e6;
            // The tolerance is needed because requests that waited are answered one after another.
            assert!((found / ms - 1.0_f64).abs() < 0.05, "{arrivals:?}: {found} ms, not {ms}");
        }
        // Per second, four of a thousand requests are in flight when the freeze begins or are sent
        // during it.
        assert!(recorded.service.quantile(0.99) < SERVICE_NANOS + 1000, "{arrivals:?}");
        let late = recorded.late as f64 / recorded.sent as f64;
        assert!((0.08..0.12).contains(&late), "a tenth should be due within a freeze: {late}");
        assert_eq!(recorded.delay.max(), 0, "the load itself was late");
    }
}

#[test]
fn closed_loop_hides_the_freeze() {
    let recorded = record(&Schedule::default(), 2);
    assert!(recorded.response.quantile(0.999) < SERVICE_NANOS + 1000);
    assert!(recorded.response.max() >= FREEZE_NANOS);
}
