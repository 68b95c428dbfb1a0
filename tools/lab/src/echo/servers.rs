//! Servers as processes, and the load in this process.

use std::time::Duration;

use annulus_load::{Plan, ServerAddress};

use super::load;
use crate::bench::{Cell, Contenders, Measure, Outcome, Slice};
use crate::proc::Memory;
use crate::process::{ProcessError, Spec};
use crate::server::{Server, one_line};
use crate::watch::Watch;

/// All servers of a comparison, and their load. One that fails in a slice is started anew for its next slice.
#[derive(Debug)]
pub struct Servers {
    specs: Vec<Spec>,
    /// None of those that have failed.
    servers: Vec<Option<Server>>,
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
        let specs: Vec<Spec> = contenders.all().cloned().collect();
        let start = |spec| Server::start(spec).map(Some);
        let servers = specs.iter().map(start).collect::<Result<_, _>>()?;
        Ok(Servers { specs, servers, cells: cells.to_vec(), load })
    }

    fn slice(&mut self, slice: Slice) -> Outcome {
        let (spec, server) = (&self.specs[slice.contender], &mut self.servers[slice.contender]);
        let server = match server {
            Some(server) => server,
            None => server.insert(Server::start(spec).map_err(|error| error.why)?),
        };
        server.process.check(Duration::ZERO).map_err(|error| error.why)?;
        let (mut watch, address) = (Watch::new(server.process.pid()), server.address.clone());
        let sample = load::run(&self.load, &self.cells[slice.cell], address, &mut watch);
        watch.add_to(server.outcome(sample.map_err(one_line))?).map_err(one_line)
    }
}

impl Measure for Servers {
    fn measure(&mut self, slice: Slice) -> Outcome {
        let outcome = self.slice(slice);
        if outcome.is_err()
            && let Some(Server { address, process }) = self.servers[slice.contender].take()
        {
            drop(process);
            // One that was killed leaves its socket behind.
            if let ServerAddress::Unix(path) = address {
                _ = std::fs::remove_file(path);
            }
        }
        outcome
    }

    fn memory(&self) -> Vec<Option<Memory>> {
        let memory = |server: &Option<Server>| Memory::of(server.as_ref()?.process.pid()).ok();
        self.servers.iter().map(memory).collect()
    }
}
