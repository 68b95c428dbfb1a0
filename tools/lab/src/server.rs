//! A contender that is a server.

use std::io;
use std::mem;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use annulus_load::{Observer, ServerAddress};

use crate::bench::Sample;
use crate::proc::{Memory, Usage};
use crate::process::{Process, ProcessError, START_TIMEOUT, Spec};
use crate::turns::Turn;

/// A running server, which is ended when dropped. It announces its address on standard error in a
/// line with `listening on ADDRESS:PORT` or `listening on unix:/path`, or its sockets are looked up
/// ([`ready`](crate::ready)).
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) process: Process,
    pub(crate) address: ServerAddress,
}

impl Server {
    /// Starts a server and waits until it announces its address.
    pub(crate) fn start(spec: &Spec) -> Result<Server, ProcessError> {
        Server::start_within(spec, START_TIMEOUT)
    }

    fn start_within(spec: &Spec, timeout: Duration) -> Result<Server, ProcessError> {
        let mut process = Process::start(spec)?;
        match process.output.address(timeout) {
            Ok(address) => Ok(Server { process, address }),
            Err(RecvTimeoutError::Timeout) => {
                Err(process.error(format!("no line with `listening on` within {timeout:?}")))
            }
            Err(RecvTimeoutError::Disconnected) => {
                let closed = "it closed its standard error before it printed `listening on`";
                Err(process.error_or_end(closed))
            }
        }
    }
}

/// How long to wait until a server has finished its outstanding work. A server can answer several
/// thousand requests in this time. Some servers are never idle.
const REST_TIMEOUT: Duration = Duration::from_millis(20);

/// Reads the usage of a server when the measured window opens and closes.
///
/// Clients that are tasks pause at both times, so the server finishes its work before its CPU time
/// is read: at both edges of the window, everything sent is answered and accounted (ADR 0017). If
/// they also pause in between, the loads of other servers run then.
#[derive(Debug)]
pub(crate) struct UsageObserver<'a> {
    pid: u32,
    turn: Option<&'a Turn<'a>>,
    /// The usage at the start of the current turn.
    began: io::Result<Usage>,
    /// The usage in all earlier turns.
    used: io::Result<Usage>,
    /// Whether the server was idle after its last turn.
    has_rested: bool,
}

impl<'a> UsageObserver<'a> {
    /// Creates an observer of the server with this process id, whose load may take turns with
    /// others.
    pub(crate) fn new(pid: u32, turn: Option<&'a Turn<'a>>) -> UsageObserver<'a> {
        let (began, used) = (never_began(), Ok(Usage::default()));
        UsageObserver { pid, turn, began, used, has_rested: true }
    }

    fn begin_turn(&mut self) {
        self.began = Usage::at_rest(self.pid, REST_TIMEOUT);
    }

    fn end_turn(&mut self) {
        let ended = Usage::after_rest(self.pid, REST_TIMEOUT);
        self.has_rested = ended.as_ref().is_ok_and(|(_, has_rested)| *has_rested);
        let began = mem::replace(&mut self.began, never_began());
        let earlier = mem::replace(&mut self.used, never_began());
        self.used = earlier.and_then(|earlier| Ok(earlier.plus(ended?.0.since(began?))));
    }

    /// Returns false if the server was still busy after its last turn.
    pub(crate) fn has_rested(&self) -> bool {
        self.has_rested
    }

    /// Returns the sample of the load, with the usage of the server.
    pub(crate) fn add_to(self, mut sample: Sample) -> io::Result<Sample> {
        add_usage(&mut sample, self.pid, self.used?)?;
        Ok(sample)
    }
}

impl Observer for UsageObserver<'_> {
    fn window_opened(&mut self) {
        self.begin_turn();
    }

    fn paused(&mut self) {
        self.end_turn();
        if let Some(turn) = self.turn {
            turn.pass();
        }
    }

    fn resumed(&mut self) {
        self.begin_turn();
    }

    fn window_closed(&mut self) {
        self.end_turn();
    }
}

fn never_began() -> io::Result<Usage> {
    Err(io::Error::other("the measured window never opened"))
}

/// Adds the usage and the memory of the server to a sample.
///
/// # Errors
/// If it used no measurable CPU time, or has ended.
fn add_usage(sample: &mut Sample, pid: u32, used: Usage) -> io::Result<()> {
    if used.cpu_ns == 0 {
        return Err(io::Error::other(
            "the server used no measurable CPU time, because other work occupied its core: make slices longer",
        ));
    }
    sample.set("cpu_ns", used.cpu_ns as f64);
    sample.set("switches", used.switches as f64);
    sample.set("resident_bytes", Memory::of_tree(pid)?.resident_bytes as f64);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};
    use std::thread;

    use super::*;
    use crate::process::tests::shell;
    use crate::turns::TurnOrder;

    #[test]
    fn the_announced_address_is_used() {
        let announce = "echo 'test: listening on 127.0.0.1:9 (nothing)' >&2; exec sleep 1000";
        let server = Server::start(&shell(announce)).expect("the process did not start");
        assert_eq!(server.address, "127.0.0.1:9".parse().expect("the address is invalid"));
    }

    #[test]
    fn a_server_that_used_no_cpu_time_has_no_sample() {
        let pid = std::process::id();
        let mut sample = Sample::default();
        let error = add_usage(&mut sample, pid, Usage::default())
            .expect_err("usage without CPU time was accepted");
        assert!(error.to_string().contains("used no measurable CPU time"), "{error}");
        add_usage(&mut sample, pid, Usage { cpu_ns: 5, switches: 2 })
            .expect("the usage was refused");
        assert_eq!((sample.get("cpu_ns"), sample.get("switches")), (Some(5.0), Some(2.0)));
        assert!(sample.get("resident_bytes") > Some(0.0));
    }

    #[test]
    fn what_a_server_uses_between_turns_does_not_count() {
        const LONG: Duration = Duration::from_secs(60);
        let work = "while read line; do i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done; done";
        let mut child = Command::new("/bin/sh").args(["-c", work]).stdin(Stdio::piped()).spawn();
        let child = child.as_mut().expect("cannot start a shell");
        let (pid, lines) = (child.id(), child.stdin.take().expect("the input is not a pipe"));
        let rest = || Usage::at_rest(pid, LONG).expect("no usage");
        let work = |count| {
            (&lines).write_all(&b"\n".repeat(count)).expect("the shell does not read");
            rest()
        };
        let (turns, first) = (TurnOrder::new(2), rest());
        let sample = thread::scope(|scope| {
            scope.spawn(|| {
                let _turn = turns.start(1);
                work(20);
            });
            let turn = turns.start(0);
            let mut observer = UsageObserver::new(pid, Some(&turn));
            observer.window_opened();
            work(1);
            observer.paused();
            work(5);
            observer.resumed();
            observer.window_closed();
            assert!(observer.has_rested());
            observer.add_to(Sample::default()).expect("the usage was refused")
        });
        let all = rest().since(first).cpu_ns as f64;
        drop(lines);
        child.wait().expect("the process cannot be waited for");
        let counted = sample.get("cpu_ns").expect("no CPU time");
        assert!(counted > 0.0 && counted < all / 4.0, "{counted} of {all} ns");
    }

    #[test]
    fn a_server_without_an_announcement_is_an_error() {
        for (script, part) in [
            ("echo no >&2; exit 7", "shell: ended (exit status: 7); its last line: no"),
            ("exec 2>&-; exec sleep 1000", "shell: it closed its standard error before"),
        ] {
            let error = Server::start(&shell(script)).expect_err(script).to_string();
            assert!(error.starts_with(part), "{error}");
        }
        let silent = Server::start_within(&shell("exec sleep 1000"), Duration::from_millis(1));
        let error = silent.expect_err("a server without an announcement was accepted").to_string();
        assert_eq!(error, "shell: no line with `listening on` within 1ms; it printed nothing");
    }
}
