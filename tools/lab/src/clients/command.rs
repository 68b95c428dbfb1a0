//! A client that is a program: run to its end, with a limit on its time and on what is kept of its output.

use std::time::Duration;

use annulus_load::{Observer, clock};

use crate::bench::{CLIENT_CPU_SHARE, REFUSED_KEY, Sample};
use crate::cpu_clock::children_cpu;
use crate::describe::{Parser, find_installed};
use crate::process::{Process, Spec};
use crate::server::one_line;

/// The number of bytes that are kept of the end of an output.
const KEPT: usize = 1 << 20;

/// How long to wait for the end of an output whose program has ended.
const OUTPUT: Duration = Duration::from_secs(2);

/// The output of a client that was run, and how it used its core.
pub(super) struct Run {
    pub(super) printed: String,
    pub(super) took: Duration,
    /// How much of its core it used.
    cpu_share: f64,
    program: String,
}

/// Runs a client on a core, if one is given, at most for so long; the observer is notified of its start and its end.
///
/// # Errors
/// If it cannot be run, does not end in time (it is killed), or fails.
pub(super) fn run(
    words: &[String],
    core: Option<usize>,
    patience: Duration,
    observer: &mut dyn Observer,
) -> Result<Run, String> {
    let program = words[0].clone();
    let path = find_installed(&program)?;
    let arguments = words[1..].iter().map(Into::into).collect();
    let spec = Spec { arguments, pin: core, ..Spec::of(&program, path) };
    let used = children_cpu().map_err(one_line)?;
    observer.window_opened();
    let began = clock::now();
    let mut process = Process::start_read(&spec, KEPT, None).map_err(|error| error.why)?;
    let ended = process.ended(patience);
    let took = clock::now() - began;
    observer.window_closed();
    let Some(status) = ended else {
        return Err(process.error(format!("{program} did not end within {patience:?}")).why);
    };
    process.stderr.read_to_end(OUTPUT);
    if !status.success() {
        return Err(process.error(format!("{program} failed ({status})")).why);
    }
    let used = children_cpu().map_err(one_line)?.saturating_sub(used);
    let cpu_share = used.as_secs_f64() / took.as_secs_f64();
    Ok(Run { printed: process.stderr.text(), took, cpu_share, program })
}

impl Run {
    /// The sample in the output, with the share of the core.
    ///
    /// # Errors
    /// If the output is not what is expected, a request failed, or none was answered.
    pub(super) fn sample(&self, parser: &Parser, requests: Option<u64>) -> Result<Sample, String> {
        let sample = parser.sample(&self.printed, requests, self.took);
        let mut sample = sample.map_err(|why| format!("the output of {} {why}", self.program))?;
        sample.set(CLIENT_CPU_SHARE, self.cpu_share);
        let refused = sample.get(REFUSED_KEY).unwrap_or_default();
        match (sample.get("errors").unwrap_or_default(), sample.get("operations")) {
            (0.0, Some(all @ 1.0..)) if refused < all => Ok(sample),
            (0.0, _) if refused > 0.0 => {
                Err(format!("every reply is a refusal ({refused}): check what is asked for"))
            }
            (0.0, _) => Err("no request was answered; make the slice longer".into()),
            (errors, _) => Err(format!("{errors} requests failed")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    fn shell(script: &str, patience: Duration) -> Result<Run, String> {
        run(&["sh", "-c", script].map(str::to_owned), None, patience, &mut ())
    }

    fn sample(script: &str) -> Result<Sample, String> {
        let parser = Parser::choose("wrk", &[]).expect("known");
        shell(script, LONG)?.sample(&parser, None)
    }

    #[test]
    fn failed_requests_no_requests_and_other_output_are_refused() {
        let good = sample("echo measured 10 1000 5 5 5 5 0 1").expect("a sample");
        assert!(good.get(CLIENT_CPU_SHARE) >= Some(0.0), "{good:?}");
        for (script, part) in [
            ("echo measured 65000 1003000 812.5 790 1600 2000 3 0", "3 requests failed"),
            ("echo measured 65 1003000 812.5 790 1600 2000 0 65", "every reply is a refusal (65)"),
            ("echo measured 0 1003000 0.0 0 0 0 0 0", "no request was answered"),
            ("echo so much", "the output of sh makes no sense: so much"),
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
            .expect("killed");
        assert!(error.starts_with("sh did not end within 300ms; "), "{error}");
        let words = ["/no/such/client".to_owned()];
        let error = run(&words, None, LONG, &mut ()).err().expect("missing");
        assert!(error.starts_with("/no/such/client is no program here"), "{error}");
    }

    #[test]
    fn of_an_output_without_an_end_only_the_end_is_kept() {
        let script = "yes line | head -c 4000000; echo; echo measured 10 1000 5 5 5 5 0 1";
        let run = shell(script, LONG).expect("it ends");
        assert!(run.printed.len() <= KEPT && run.printed.ends_with("5 0 1\n"));
    }
}
