//! How the clocks of machines compare.

use super::{Machine, RunInfo};
use serde::{Deserialize, Serialize};
use std::fmt;

/// How the clock of a machine compares with another one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClockReading {
    /// The other clock, as an address.
    pub reference: String,
    /// How many seconds the machine's clock is ahead of the reference; negative if it is behind.
    pub ahead: f64,
    /// By how much that may be wrong, in seconds: half the round trip of the exchange.
    pub uncertainty: f64,
}

/// How the clocks of several runs compare.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Clocks {
    /// All runs have used the clock of one machine.
    Same,
    /// Each was compared with the same reference.
    Measured {
        /// The reference.
        reference: String,
        /// The largest difference between two of them, in seconds.
        widest: f64,
        /// By how much that may be wrong, in seconds.
        uncertainty: f64,
    },
    /// They were not compared, and this is why.
    Unknown(String),
}

impl Clocks {
    /// Compares the clocks of these runs.
    pub fn of<'a>(runs: impl Iterator<Item = &'a RunInfo> + Clone) -> Clocks {
        let machine = |run: &'a RunInfo| -> &'a Machine { &run.machine };
        let Some(first) = runs.clone().next() else { return Clocks::Same };
        let is_first = |run: &RunInfo| run.machine.has_the_clock_of(&first.machine);
        if runs.clone().skip(1).all(is_first) {
            return Clocks::Same;
        }
        let readings = runs.clone().map(|run| run.clock.as_ref().ok_or(machine(run)));
        let readings: Vec<&ClockReading> = match readings.collect() {
            Ok(readings) => readings,
            Err(Machine { host, .. }) => {
                return Clocks::Unknown(format!("that of {host} was compared with none (--clock)"));
            }
        };
        let reference = &readings[0].reference;
        if let Some(other) = readings.iter().find(|reading| reading.reference != *reference) {
            let other = &other.reference;
            return Clocks::Unknown(format!(
                "one was compared with {reference}, another with {other}"
            ));
        }
        let by_ahead =
            |one: &&&ClockReading, other: &&&ClockReading| one.ahead.total_cmp(&other.ahead);
        let (least, most) = (readings.iter().min_by(by_ahead), readings.iter().max_by(by_ahead));
        let (least, most) = (least.expect("a reading"), most.expect("a reading"));
        Clocks::Measured {
            reference: reference.clone(),
            widest: most.ahead - least.ahead,
            uncertainty: most.uncertainty + least.uncertainty,
        }
    }

    /// When a run began, in seconds since the epoch: by the reference if all were compared with it, else by its own clock.
    pub(super) fn started(&self, run: &RunInfo) -> f64 {
        match (self, &run.clock) {
            (Clocks::Measured { .. }, Some(clock)) => run.started - clock.ahead,
            _ => run.started,
        }
    }
}

impl fmt::Display for Clocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Clocks::Same => f.write_str("one machine's"),
            Clocks::Measured { reference, widest, uncertainty } => write!(
                f,
                "up to {:.3} ms apart (± {:.3} ms), by {reference}",
                widest * 1e3,
                uncertainty * 1e3
            ),
            Clocks::Unknown(why) => write!(f, "not compared: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(boot: &str, reading: Option<(&str, f64)>) -> RunInfo {
        let machine =
            Machine { host: format!("host-{boot}"), boot: boot.into(), ..Machine::default() };
        let clock = reading.map(|(reference, ahead)| ClockReading {
            reference: reference.into(),
            ahead,
            uncertainty: 0.001,
        });
        RunInfo { machine, clock, started: 100.0, ..RunInfo::default() }
    }

    fn text(runs: &[RunInfo]) -> String {
        Clocks::of(runs.iter()).to_string()
    }

    #[test]
    fn what_was_measured_is_said() {
        assert_eq!(text(&[run("a", None), run("a", None)]), "one machine's");
        let runs = [
            run("a", Some(("r:1", 0.25))),
            run("b", Some(("r:1", -0.5))),
            run("c", Some(("r:1", 0.0))),
        ];
        assert_eq!(text(&runs), "up to 750.000 ms apart (± 2.000 ms), by r:1");
        let clocks = Clocks::of(runs.iter());
        assert_eq!(runs.map(|run| clocks.started(&run)), [99.75, 100.5, 100.0]);
    }

    #[test]
    fn what_was_not_measured_is_said() {
        let runs = [run("a", Some(("r:1", 0.0))), run("b", None)];
        assert_eq!(text(&runs), "not compared: that of host-b was compared with none (--clock)");
        let runs = [run("a", Some(("r:1", 0.0))), run("b", Some(("r:2", 1.0)))];
        assert_eq!(text(&runs), "not compared: one was compared with r:1, another with r:2");
        assert_eq!(Clocks::of(runs.iter()).started(&runs[1]), 100.0);
    }
}
