//! The clients of a slice: annulus's own loads, and other programs.

mod command;
mod fan_out;
mod own;

use std::path::PathBuf;
use std::time::Duration;

use annulus_load::{Observer, ServerAddress, affinity};

use crate::bench::{Sample, rate};
use crate::describe::{Client, Load, Parser, filled, has};
use crate::usage_error::one_line;

/// The number of requests, before it is multiplied by the depth, in the short run that determines
/// the number of requests of a slice.
const PROBE_REQUESTS: u64 = 1000;

/// The highest plausible rate. A run that is too short to be timed would have an infinite rate.
const MAX_REQUESTS_PER_SECOND: f64 = 1e8;

/// How much longer than the slice a client may run.
const CLIENT_TIMEOUT_SLACK: Duration = Duration::from_secs(30);

/// How long a client without a settable duration may run.
const UNTIMED_CLIENT_TIMEOUT: Duration = Duration::from_secs(600);

/// The duration of a trial of a load.
const TRIAL_TIME: Duration = Duration::from_millis(200);

/// How clients are run.
#[derive(Clone, Debug)]
pub(crate) struct Clients {
    /// The core of the clients, unless they run on any.
    pub(crate) core: Option<usize>,
    /// How long clients that are programs run.
    pub(crate) time: Duration,
    /// The maximum time of annulus's own loads.
    pub(crate) max_time: Duration,
    /// The directory for the scripts of clients.
    pub(crate) directory: PathBuf,
}

impl Clients {
    /// Returns these settings with a short time, which applies to clients whose time can be set.
    pub(crate) fn for_trial(&self) -> Clients {
        Clients { time: self.time.min(TRIAL_TIME), max_time: TRIAL_TIME, ..self.clone() }
    }

    /// Returns how long a load of annulus is measured.
    fn own_time(&self, load: &Load) -> Duration {
        self.time.max(load.min_time).min(self.max_time)
    }

    /// Loads a server, in an open loop if there is a rate, and notifies the observer of the
    /// measured window. For programs, the window is from their start to their end.
    ///
    /// # Errors
    /// If the client cannot run, or a request failed.
    pub(crate) fn run(
        &self,
        load: &Load,
        address: Option<&ServerAddress>,
        rate: Option<f64>,
        observer: &mut dyn Observer,
    ) -> Result<Sample, String> {
        let address = address.ok_or("it has no address")?;
        match &load.client {
            Client::Job(_) => Err("a job needs a contender that reads jobs".into()),
            Client::OfContender => Err("the contender has no client".into()),
            Client::Own { options, .. } => {
                let _pinned = self.core.map(affinity::pin).transpose().map_err(one_line)?;
                let time = self.own_time(load);
                let plan = load.plan(options, address, rate, time).map_err(one_line)?;
                own::run(&plan, observer)
            }
            Client::FanOut { message_bytes, .. } => {
                let _pinned = self.core.map(affinity::pin).transpose().map_err(one_line)?;
                let time = self.own_time(load);
                fan_out::run(load, *message_bytes, address, time, observer)
            }
            Client::Command { words, before, parser } => {
                let mut known = load.words(&address.to_string());
                known.push(("seconds", self.time.as_secs_f64().ceil().to_string()));
                known.extend(rate.map(|rate| ("rate", shown(rate))));
                if has(words, "script") {
                    let path =
                        command::write_wrk_script(load.depth, &self.directory).map_err(one_line)?;
                    known.push(("script", path.display().to_string()));
                }
                let fill = |words: &[String]| {
                    words.iter().map(|word| filled(word, &known)).collect::<Vec<_>>()
                };
                if !before.is_empty() {
                    command::run(&fill(before), self.core, UNTIMED_CLIENT_TIMEOUT, &mut ())?;
                }
                match has(words, "requests") {
                    true => self.run_requests(&fill(words), parser, load.depth, observer),
                    false => {
                        let is_timed = has(words, "seconds");
                        let patience = if is_timed {
                            self.time + CLIENT_TIMEOUT_SLACK
                        } else {
                            UNTIMED_CLIENT_TIMEOUT
                        };
                        command::run(&fill(words), self.core, patience, observer)?
                            .sample(parser, None)
                    }
                }
            }
        }
    }

    /// Runs a client that takes a number of requests instead of a time. A short run comes first and
    /// determines the number.
    fn run_requests(
        &self,
        words: &[String],
        parser: &Parser,
        depth: u64,
        observer: &mut dyn Observer,
    ) -> Result<Sample, String> {
        let run = |requests: u64, observer: &mut dyn Observer| {
            let known = [("requests", requests.to_string())];
            let words: Vec<_> = words.iter().map(|word| filled(word, &known)).collect();
            let run = command::run(&words, self.core, UNTIMED_CLIENT_TIMEOUT, observer)?;
            run.sample(parser, Some(requests))
        };
        let least = PROBE_REQUESTS * depth;
        let probe = run(least, &mut ())?;
        let rate = rate().of.of(&probe).unwrap_or_default().min(MAX_REQUESTS_PER_SECOND);
        run(least.max((rate * self.time.as_secs_f64()) as u64), observer)
    }
}

/// Returns the text of a rate for programs: a whole number if rounding changes it by at most 1 %.
fn shown(rate: f64) -> String {
    let whole = rate.round();
    let rate = if (rate - whole).abs() <= 0.01 * rate { whole } else { rate };
    rate.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::Cell;
    use annulus_load::Options;

    #[test]
    fn own_loads_last_at_least_as_long_as_they_need_except_in_a_trial() {
        let [time, needed] = [50, 300].map(Duration::from_millis);
        let directory = PathBuf::new();
        let clients = Clients { core: None, time, max_time: Duration::MAX, directory };
        let load = Load::own(Cell::new([]), Options::default(), Duration::ZERO);
        assert_eq!(clients.own_time(&load), time);
        let load = Load { min_time: needed, ..load };
        assert_eq!(clients.own_time(&load), needed);
        assert_eq!(clients.for_trial().own_time(&load), TRIAL_TIME);
    }

    #[test]
    fn a_small_rate_is_not_rounded() {
        assert_eq!([0.4, 2.5, 1000.4, 2.0].map(super::shown), ["0.4", "2.5", "1000", "2"]);
    }
}
