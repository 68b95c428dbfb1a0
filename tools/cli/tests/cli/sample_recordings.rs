//! Made-up recordings for tests of the code that reads recordings.

use annulus_load::recording::{Interval, Latencies, Machine, Recording, RunInfo};
use std::fs::File;
use std::path::{Path, PathBuf};

/// Returns a run of 30 s with latencies multiplied by `factor`.
pub(crate) fn recording(seed: u64, factor: f64) -> Recording {
    let mut random = NoiseSource(seed);
    let factor = factor * random.near(1.0);
    let second = |n: u32| {
        let slow = if n % 10 == 4 { 3.0 } else { 1.0 };
        let latency = |k: u32| ((factor * slow * random.near(f64::from(k))) as u64 * 500, 100);
        let response: Latencies = (1..=200).map(latency).collect();
        Interval {
            sent: 20_100,
            answered: 20_000,
            late: 100,
            failed: u64::from(n % 7),
            outcomes: [("2xx".to_owned(), 19_990), ("5xx".to_owned(), 10)].into(),
            service: response.buckets().iter().map(|&(nanos, count)| (nanos / 2, count)).collect(),
            response,
            ..Interval::new(f64::from(n), 1.0)
        }
    };
    let intervals: Vec<Interval> = (0..30).map(second).collect();
    let run = RunInfo {
        command: ["annulus", "load", "http://h/?a=1&b=<2>", "-d", "30"].map(String::from).into(),
        label: Some("a <label>".into()),
        machine: Machine { host: "measuring-host".into(), ..Machine::default() },
        started: 1.79e9,
        address: "http://h/?a=1&b=<2>".into(),
        protocol: "http".into(),
        connections: 50,
        schedule: "20100 per second".into(),
        rate: Some(20_100.0),
        duration: 30.0,
        interval: 1.0,
        ..RunInfo::default()
    };
    let cpu_seconds = 12.0 * factor;
    Recording {
        seconds: 30.0,
        errors: [("reset".to_owned(), 3)].into(),
        cpu_seconds,
        warnings: vec!["the load used 97 % of its core".into()],
        intervals,
        ..Recording::new(run)
    }
}

/// Writes a recording to a file of this name.
pub(crate) fn write(directory: &Path, name: &str, recording: &Recording) -> PathBuf {
    let path = directory.join(name);
    recording.write(File::create(&path).unwrap()).unwrap();
    path
}

/// A pseudo-random sequence, the same each time.
struct NoiseSource(u64);

impl NoiseSource {
    /// Returns the value, varied by up to 2 %.
    fn near(&mut self, value: f64) -> f64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        value * (0.98 + 0.04 * (self.0 >> 11) as f64 / (1u64 << 53) as f64)
    }
}
