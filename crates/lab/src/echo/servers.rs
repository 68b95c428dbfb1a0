//! Servers as processes, and the load in this process.

use std::time::Duration;

use annulus_load::Plan;

use super::load;
use crate::bench::{Cell, Contenders, Measure, Outcome, Slice};
use crate::proc::Memory;
use crate::process::ProcessError;
use crate::server::{Server, one_line};
use crate::watch::Watch;

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
