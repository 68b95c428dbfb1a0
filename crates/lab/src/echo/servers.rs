//! Servers as processes, and the load in this process.

use std::io;
use std::time::Duration;

use annulus_load::{Observer, Plan};

use super::load;
use crate::bench::{Cell, Contenders, Measure, Outcome, Sample, Slice};
use crate::proc::{Memory, Usage};
use crate::process::ProcessError;
use crate::server::{Server, add_usage, one_line, usage_at_rest};

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
        let server = &mut self.servers[slice.contender];
        server.process.check(Duration::ZERO).map_err(|error| error.why)?;
        let (mut watch, address) = (Watch::new(server.process.pid()), server.address.clone());
        let sample = load::run(&self.load, &self.cells[slice.cell], address, &mut watch);
        watch.add_to(server.outcome(sample.map_err(one_line))?).map_err(one_line)
    }

    fn memory(&self) -> Vec<Option<Memory>> {
        self.servers.iter().map(|server| Memory::of(server.process.pid()).ok()).collect()
    }
}

/// Reads the server's usage when the measured window opens and closes.
///
/// Clients that are tasks send nothing meanwhile, so the server finishes its work, and its CPU time is read then: at
/// both edges of the window everything sent is answered and accounted (ADR 0017). Threads continue until the window
/// closes.
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
        add_usage(&mut sample, self.pid, used)?;
        Ok(sample)
    }
}

impl Observer for Watch {
    fn window_opened(&mut self) {
        self.opened = usage_at_rest(self.pid);
    }

    fn window_closed(&mut self) {
        self.closed = usage_at_rest(self.pid);
    }
}
