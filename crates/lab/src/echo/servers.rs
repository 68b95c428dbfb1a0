//! Servers as processes, and the load in this process.

use std::io;
use std::time::Duration;

use annulus_load::{Observer, Plan};

use super::load;
use crate::bench::{Cell, Contenders, Measure, Outcome, Sample, Slice};
use crate::proc::{Memory, Usage};
use crate::process::ProcessError;
use crate::server::Server;

/// How long to wait for the end of a server whose clients failed.
const END_WAIT: Duration = Duration::from_millis(200);

/// How long a server may take to answer what is in flight: several thousand requests.
const REST_TIMEOUT: Duration = Duration::from_millis(20);

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
