//! Servers as processes, and the load in this process.

use std::io;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use annulus_load::{Observer, Plan, ServerAddress};

use super::load;
use crate::bench::{Cell, Contenders, Measure, Outcome, Sample, Slice};
use crate::proc::{Memory, Usage};
use crate::process::{Process, ProcessError, Spec};

/// How long a server may take to announce its address.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// How long to wait for the end of a server whose clients failed.
const END_WAIT: Duration = Duration::from_millis(200);

/// How long a server may take to answer what is in flight: several thousand requests.
const REST_TIMEOUT: Duration = Duration::from_millis(20);

/// A running server, which ends when dropped. It announces itself on its standard error by a line with `listening on
/// ADDRESS:PORT` or `listening on unix:/path`.
#[derive(Debug)]
pub(super) struct Server {
    process: Process,
    address: ServerAddress,
}

impl Server {
    /// Starts a server and waits for its announcement.
    pub(super) fn start(spec: &Spec) -> Result<Server, ProcessError> {
        Server::start_within(spec, START_TIMEOUT)
    }

    fn start_within(spec: &Spec, timeout: Duration) -> Result<Server, ProcessError> {
        let mut process = Process::start(spec)?;
        match process.stderr.address(timeout) {
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

/// All servers of a comparison, and their load.
#[derive(Debug)]
pub struct Servers {
    servers: Vec<Server>,
    cells: Vec<Cell>,
    load: Plan,
}

impl Servers {
    /// Starts every server. All stay up: an idle one uses no CPU time.
    ///
    /// # Errors
    /// Names the first server that does not start, and why.
    pub fn start(
        contenders: &Contenders,
        cells: &[Cell],
        load: Plan,
    ) -> Result<Servers, ProcessError> {
        let servers = contenders.all().map(Server::start).collect::<Result<_, _>>()?;
        Ok(Servers { servers, cells: cells.to_vec(), load })
    }
}

impl Measure for Servers {
    fn measure(&mut self, slice: Slice) -> Outcome {
        let Server { process, address } = &mut self.servers[slice.contender];
        process.check(Duration::ZERO).map_err(|error| error.why)?;
        let mut watch = Watch::new(process.pid());
        let sample = load::run(&self.load, &self.cells[slice.cell], address.clone(), &mut watch);
        // The end of a server explains more than the failures of its clients, which may be seen first.
        process
            .check(if sample.is_ok() { Duration::ZERO } else { END_WAIT })
            .map_err(|error| error.why)?;
        watch.add_to(sample.map_err(one_line)?).map_err(one_line)
    }

    fn memory(&self) -> Vec<Option<Memory>> {
        self.servers.iter().map(|server| Memory::of(server.process.pid()).ok()).collect()
    }
}

fn one_line(error: impl ToString) -> String {
    error.to_string().replace('\n', " ")
}

/// Reads the server's usage when the measured window opens and closes.
///
/// Clients that are tasks send nothing meanwhile, so the server finishes its work, and its CPU time is read then: at
/// both edges of the window everything sent is answered and accounted (ADR 0017). Threads continue until the window
/// closes, and some servers are never idle: those are read after a short wait.
struct Watch {
    pid: u32,
    opened: io::Result<Usage>,
    closed: io::Result<Usage>,
}

impl Watch {
    fn new(pid: u32) -> Watch {
        let never = || Err(io::Error::other("the measured window never opened or never closed"));
        Watch { pid, opened: never(), closed: never() }
    }

    /// The sample of the load, with the usage of the server.
    fn add_to(self, mut sample: Sample) -> io::Result<Sample> {
        let used = self.closed?.since(self.opened?);
        if used.cpu_ns == 0 {
            return Err(io::Error::other("the server's CPU clock does not move here"));
        }
        sample.set("cpu_ns", used.cpu_ns as f64);
        sample.set("switches", used.switches as f64);
        sample.set("resident_bytes", Memory::of(self.pid)?.resident_bytes as f64);
        Ok(sample)
    }
}

impl Observer for Watch {
    fn window_opened(&mut self) {
        self.opened = Usage::at_rest(self.pid, REST_TIMEOUT);
    }

    fn window_closed(&mut self) {
        self.closed = Usage::at_rest(self.pid, REST_TIMEOUT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::tests::shell;

    #[test]
    fn the_announced_address_is_used() {
        let announce = "echo 'test: listening on 127.0.0.1:9 (nothing)' >&2; exec sleep 1000";
        let server = Server::start(&shell(announce)).expect("start");
        assert_eq!(server.address, "127.0.0.1:9".parse().expect("address"));
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
        let error = silent.expect_err("it prints nothing").to_string();
        assert_eq!(error, "shell: no line with `listening on` within 1ms; it printed nothing");
    }
}
