//! Servers as processes, and our load in this one.

use std::io;
use std::time::Duration;

use annulus_load::Observer;

use super::load::Load;
use crate::bench::{Cell, Contenders, Measure, Outcome, Sample, Slice};
use crate::proc::{Memory, Usage};
use crate::server::{Server, ServerError};

/// How long a server that lost its clients may take to be found dead.
const DYING: Duration = Duration::from_millis(200);

/// How long a server may take to answer what is in flight: several thousand requests.
const PATIENCE: Duration = Duration::from_millis(20);

/// All servers of a comparison, up and waiting, and the load that they are measured under.
#[derive(Debug)]
pub struct Servers {
    servers: Vec<Server>,
    cells: Vec<Cell>,
    load: Load,
}

impl Servers {
    /// Starts every server. An idle one costs nothing, so all stay up.
    ///
    /// # Errors
    /// Names the first that does not start, and why.
    pub fn start(
        contenders: &Contenders,
        cells: &[Cell],
        load: Load,
    ) -> Result<Servers, ServerError> {
        let servers = contenders.all().map(Server::start).collect::<Result<_, _>>()?;
        Ok(Servers { servers, cells: cells.to_vec(), load })
    }
}

impl Measure for Servers {
    fn measure(&mut self, slice: Slice) -> Outcome {
        let server = &mut self.servers[slice.contender];
        server.check(Duration::ZERO).map_err(one_line)?;
        let mut watch = Watch::new(server.pid());
        let sample = self.load.run(&self.cells[slice.cell], server.address().clone(), &mut watch);
        // A dead server explains more than what its clients saw, and they may see it first.
        server.check(if sample.is_ok() { Duration::ZERO } else { DYING }).map_err(one_line)?;
        watch.add_to(sample.map_err(one_line)?).map_err(one_line)
    }

    fn memory(&self) -> Vec<Option<Memory>> {
        self.servers.iter().map(|server| Memory::of(server.pid()).ok()).collect()
    }
}

fn one_line(error: impl ToString) -> String {
    error.to_string().replace('\n', " ")
}

/// Reads what the server has used when the measured window opens and when it closes.
///
/// Clients that are tasks send nothing while this reads, so a server runs out of work, and its time is read when it has:
/// at either edge of the window all that was sent is answered, and what it cost is counted (ADR 0017). Threads go on until
/// the window closes, and some servers are never idle: those are read after a short wait.
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

    /// What the load found, with what it cost the server.
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
        self.opened = Usage::at_rest(self.pid, PATIENCE);
    }

    fn window_closed(&mut self) {
        self.closed = Usage::at_rest(self.pid, PATIENCE);
    }
}
