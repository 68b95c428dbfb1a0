//! The clients: our load, and programs. Each has a file: how it is called, and what it prints.

mod h2load;
mod own;
mod redis_benchmark;
mod wrk;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use annulus_load::{Mode, Observer, affinity, clock};

use super::installed::Installed;
use super::load::Load;
use crate::bench::{CLIENT_CPU_SHARE, Sample};
use crate::child;
use crate::cpu_clock::children_cpu;
use crate::server::one_line;

/// What loads servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// `wrk`, for HTTP/1.1; requests are pipelined by a script.
    Wrk,
    /// `h2load`, for HTTP/2.
    H2load,
    /// `redis-benchmark`, for stores.
    RedisBenchmark,
    /// Our load, for what echoes: a task for each connection, or a thread, which does not batch.
    Own(Mode),
}

impl Client {
    /// How to install it, if it is a program that is not installed.
    pub(super) fn missing(self) -> Option<String> {
        let program: Installed = match self {
            Client::Own(_) => return None,
            Client::Wrk => wrk::PROGRAM,
            Client::H2load => h2load::PROGRAM,
            Client::RedisBenchmark => redis_benchmark::PROGRAM,
        };
        program.find().err()
    }
}

/// Finds the sample in the output of a program.
type Parser<'a> = &'a dyn Fn(&str) -> Option<Sample>;

/// How clients are run.
#[derive(Debug)]
pub(super) struct Clients {
    /// Their core, unless they run on any.
    pub(super) core: Option<usize>,
    /// For how long.
    pub(super) seconds: u64,
    /// A directory for their scripts.
    pub(super) directory: PathBuf,
}

impl Clients {
    /// Loads a server, ours in an open loop if there is a rate, and notifies the observer of the measured window: for programs from
    /// their start to their end.
    ///
    /// # Errors
    /// If the client cannot run, or a request failed.
    pub(super) fn run(
        &self,
        load: &Load,
        address: &str,
        rate: Option<f64>,
        observer: &mut dyn Observer,
    ) -> Result<Sample, String> {
        let Clients { core, seconds, directory } = self;
        let _pinned = core.map(affinity::pin).transpose().map_err(one_line)?;
        match load.client {
            Client::Own(mode) => own::run(load, mode, address, rate, *seconds, observer),
            Client::Wrk => {
                let script = wrk::write_script(load, directory).map_err(one_line)?;
                let words = wrk::words(load, address, *seconds, script);
                run_program(words, &wrk::sample, observer)
            }
            Client::H2load => {
                run_program(h2load::words(load, address, *seconds), &h2load::sample, observer)
            }
            Client::RedisBenchmark => redis_benchmark::run(load, address, *seconds, observer),
        }
    }
}

/// Runs a client that is a program to its end. Its sample, with its share of the core.
fn run_program(
    words: Vec<OsString>,
    sample: Parser<'_>,
    observer: &mut dyn Observer,
) -> Result<Sample, String> {
    let program = words[0].to_string_lossy().into_owned();
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    let used = children_cpu().map_err(one_line)?;
    observer.window_opened();
    let began = clock::now();
    let output = child::output(command);
    let took = clock::now() - began;
    observer.window_closed();
    let output = output.map_err(|error| format!("cannot run {program}: {error}"))?;
    if !output.status.success() {
        let printed = String::from_utf8_lossy(&output.stderr);
        let last = printed.lines().last().unwrap_or("it printed nothing").to_owned();
        return Err(format!("{program} failed ({}): {last}", output.status));
    }
    let mut sample = accepted(&program, &String::from_utf8_lossy(&output.stdout), sample)?;
    let used = children_cpu().map_err(one_line)?.saturating_sub(used);
    sample.set(CLIENT_CPU_SHARE, used.as_secs_f64() / took.as_secs_f64());
    Ok(sample)
}

/// The sample in the output of a program; an error if a request failed, or the output is not what is expected.
fn accepted(program: &str, printed: &str, sample: Parser<'_>) -> Result<Sample, String> {
    let Some(sample) = sample(printed) else {
        let last = printed.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("nothing");
        return Err(format!("the output of {program} makes no sense: {last}"));
    };
    match (sample.get("errors").unwrap_or_default(), sample.get("operations")) {
        (0.0, Some(1.0..)) => Ok(sample),
        (0.0, _) => Err("no request was answered; make the slice longer".into()),
        (errors, _) => Err(format!("{errors} requests failed")),
    }
}

/// The words of a command line.
fn line<const N: usize>(program: Installed, words: &str, rest: [OsString; N]) -> Vec<OsString> {
    let words = words.split(' ').map(OsString::from);
    [program.program.into()].into_iter().chain(words).chain(rest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_requests_no_requests_and_other_output_are_refused() {
        let failed = accepted("wrk", "measured 65000 1003000 812.5 790 1600 2000 3", &wrk::sample);
        assert_eq!(failed.unwrap_err(), "3 requests failed");
        let none = accepted("wrk", "measured 0 1003000 0.0 0 0 0 0", &wrk::sample);
        assert!(none.unwrap_err().starts_with("no request was answered"));
        for sample in [wrk::sample, h2load::sample] {
            let other = accepted("it", "measured so much\nunable to connect\n", &sample);
            assert_eq!(other.unwrap_err(), "the output of it makes no sense: unable to connect");
        }
    }

    #[test]
    fn a_program_that_fails_is_quoted() {
        let script = |script: &str| ["sh", "-c", script].map(OsString::from).to_vec();
        let run = |words| run_program(words, &wrk::sample, &mut ());
        let failed = run(script("echo no route >&2; exit 3")).unwrap_err();
        assert_eq!(failed, "sh failed (exit status: 3): no route");
        let missing = run(vec!["/no/such/client".into()]).unwrap_err();
        assert!(missing.starts_with("cannot run /no/such/client: "), "{missing}");
        let sample = run(script("echo measured 10 1000 5 5 5 5 0")).expect("a sample");
        assert!(sample.get(CLIENT_CPU_SHARE) >= Some(0.0), "{sample:?}");
    }
}
