//! A client that is a program, run to its end with limits on its time and on the output that is
//! kept.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use annulus_load::{Observer, clock};

use crate::bench::{CLIENT_CPU_NS, CLIENT_CPU_SHARE, REFUSED_KEY, Sample};
use crate::cpu_clock::children_cpu;
use crate::describe::{Parser, find_client};
use crate::process::{Process, Spec};
use crate::usage_error::one_line;

/// How many MiB at the end of an output are kept.
const MAX_OUTPUT_MIB: usize = 16;

/// How long to wait for the end of the output after the program has ended.
const OUTPUT_END_TIMEOUT: Duration = Duration::from_secs(2);

/// The output of a client that ran, how long it ran, and the CPU time that it used.
pub(super) struct ClientRun {
    pub(super) printed: String,
    /// Whether the output is longer than what is kept.
    is_cut: bool,
    pub(super) took: Duration,
    cpu: Duration,
    program: String,
}

/// Runs a client, pinned to `core` if one is given, for at most `patience`. The observer is
/// notified of its start and its end.
///
/// # Errors
/// If it cannot be started, fails, or does not end in time, in which case it is killed.
pub(super) fn run(
    words: &[String],
    core: Option<usize>,
    patience: Duration,
    observer: &mut dyn Observer,
) -> Result<ClientRun, String> {
    let program = words[0].clone();
    let path = find_client(&program)?;
    let arguments = words[1..].iter().map(Into::into).collect();
    let spec = Spec { arguments, pin: core, ..Spec::of(&program, path) };
    let used = children_cpu().map_err(one_line)?;
    observer.window_opened();
    let began = clock::now();
    let mut process =
        Process::start_read(&spec, MAX_OUTPUT_MIB << 20, None).map_err(|error| error.why)?;
    let ended = process.ended(patience);
    let took = clock::now() - began;
    observer.window_closed();
    let Some(status) = ended else {
        return Err(process.error(format!("{program} did not end within {patience:?}")).why);
    };
    process.output.read_to_end(OUTPUT_END_TIMEOUT);
    if !status.success() {
        return Err(process.error(format!("{program} failed ({status})")).why);
    }
    let cpu = children_cpu().map_err(one_line)?.saturating_sub(used);
    let (printed, is_cut) = (process.output.text(), process.output.is_cut());
    Ok(ClientRun { printed, is_cut, took, cpu, program })
}

impl ClientRun {
    /// Returns the sample in the output, with the CPU time and the share of the core.
    ///
    /// # Errors
    /// If the output cannot be read, a request failed, every reply is a refusal, or no request was
    /// answered.
    pub(super) fn sample(&self, parser: &Parser, requests: Option<u64>) -> Result<Sample, String> {
        let sample = parser.sample(&self.printed, requests, self.took);
        let mut sample = sample.map_err(|why| {
            let cut = if self.is_cut {
                format!("; it is longer than {MAX_OUTPUT_MIB} MiB, and only its end is kept")
            } else {
                String::new()
            };
            format!("the output of {} {why}{cut}", self.program)
        })?;
        sample.set(CLIENT_CPU_SHARE, self.cpu.as_secs_f64() / self.took.as_secs_f64());
        sample.set(CLIENT_CPU_NS, self.cpu.as_nanos() as f64);
        let refused = sample.get(REFUSED_KEY).unwrap_or_default();
        match (sample.get("errors").unwrap_or_default(), sample.get("operations")) {
            (0.0, Some(all @ 1.0..)) if refused < all => Ok(sample),
            (0.0, _) if refused > 0.0 => {
                Err(format!("every reply is a refusal ({refused}): check the request"))
            }
            (0.0, _) => Err("no request was answered; make the slice longer".into()),
            (errors, _) => Err(format!("{errors} requests failed")),
        }
    }
}

/// Writes the script of wrk (HTTP/1.1) that keeps `depth` requests in flight and prints its
/// numbers. Returns its path.
pub(super) fn write_wrk_script(depth: u64, directory: &Path) -> io::Result<PathBuf> {
    let path = directory.join(format!("{depth}.lua"));
    fs::write(&path, wrk_script(depth))?;
    Ok(path)
}

/// The Lua function that prints the numbers when wrk is done.
const DONE_FUNCTION: &str = "\
done = function(summary, latency)
  local e = summary.errors
  io.write(string.format('measured %d %d %f %d %d %d %d %d\\n',
    summary.requests, summary.duration, latency.mean, latency:percentile(50), latency:percentile(99),
    latency:percentile(99.9), e.connect + e.read + e.write + e.timeout, e.status))
end
";

fn wrk_script(depth: u64) -> String {
    let pipelined = format!(
        "init = function(args)\n  all = string.rep(wrk.format(), {depth})\nend\nrequest = function() return all end\n"
    );
    if depth > 1 { pipelined + DONE_FUNCTION } else { DONE_FUNCTION.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG_TIMEOUT: Duration = Duration::from_secs(20);

    fn shell(script: &str, patience: Duration) -> Result<ClientRun, String> {
        run(&["sh", "-c", script].map(str::to_owned), None, patience, &mut ())
    }

    fn sample(script: &str) -> Result<Sample, String> {
        let parser = Parser::choose("wrk", &[]).expect("wrk has no parser");
        shell(script, LONG_TIMEOUT)?.sample(&parser, None)
    }

    #[test]
    fn failed_requests_no_requests_and_other_output_are_refused() {
        let good = sample("echo measured 10 1000 5 5 5 5 0 1").expect("no sample was read");
        assert!(good.get(CLIENT_CPU_SHARE) >= Some(0.0), "{good:?}");
        for (script, part) in [
            ("echo measured 65000 1003000 812.5 790 1600 2000 3 0", "3 requests failed"),
            ("echo measured 65 1003000 812.5 790 1600 2000 0 65", "every reply is a refusal (65)"),
            ("echo measured 0 1003000 0.0 0 0 0 0 0", "no request was answered"),
            ("echo so much", "the output of sh cannot be read; its last line: so much"),
            ("echo no route >&2; exit 3", "sh failed (exit status: 3); its last line: no route"),
            ("kill -KILL $$", "sh failed (signal: 9 (SIGKILL)); it printed nothing"),
        ] {
            let error = sample(script).expect_err(script);
            assert!(error.starts_with(part), "{error}");
        }
    }

    #[test]
    fn a_client_that_does_not_end_is_killed_and_one_that_is_missing_is_named() {
        let error = shell("echo on and on; exec sleep 1000", Duration::from_millis(300))
            .err()
            .expect("the client ended in time");
        assert!(error.starts_with("sh did not end within 300ms; "), "{error}");
        let words = ["/no/such/client".to_owned()];
        let error =
            run(&words, None, LONG_TIMEOUT, &mut ()).err().expect("a missing client was started");
        assert!(error.starts_with("/no/such/client is not an executable file"), "{error}");
    }

    #[test]
    fn only_the_tail_of_a_long_output_is_kept() {
        let script = "yes line | head -c 20000000; echo; echo measured 10 1000 5 5 5 5 0 1";
        let run = shell(script, LONG_TIMEOUT).expect("the client failed");
        assert!(run.printed.len() <= MAX_OUTPUT_MIB << 20 && run.printed.ends_with("5 0 1\n"));
        assert!(run.sample(&Parser::choose("wrk", &[]).expect("wrk has no parser"), None).is_ok());
    }

    /// The numbers are at the start, as in a recording of `annulus load`.
    #[test]
    fn an_output_whose_start_is_dropped_is_named_and_not_quoted_in_full() {
        let script = "echo measured 10 1000 5 5 5 5 0 1; head -c 20000000 /dev/zero | tr '\\0' x";
        let error = sample(script).expect_err("the numbers were kept");
        assert!(
            error.ends_with("x…; it is longer than 16 MiB, and only its end is kept"),
            "{error}"
        );
        assert!(error.len() < 500, "{error}");
    }
}
