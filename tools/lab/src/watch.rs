//! The usage of a server between the edges of the measured window.

use std::io;
use std::time::Duration;

use annulus_load::Observer;

use crate::bench::Sample;
use crate::proc::Usage;
use crate::server::add_usage;

/// How long a server may take to finish what clients left behind, several thousand requests. Some are never idle.
const REST_TIMEOUT: Duration = Duration::from_millis(20);

/// Reads the server's usage when the measured window opens and closes.
///
/// Clients that are tasks send nothing meanwhile, so the server finishes its work, and its CPU time is read then: at
/// both edges of the window everything sent is answered and accounted (ADR 0017).
#[derive(Debug)]
pub(crate) struct Watch {
    pid: u32,
    opened: io::Result<Usage>,
    closed: io::Result<Usage>,
}

impl Watch {
    /// A watch on the server with this process id.
    pub(crate) fn new(pid: u32) -> Watch {
        let never = || Err(io::Error::other("the measured window never opened or never closed"));
        Watch { pid, opened: never(), closed: never() }
    }

    /// The sample of the load, with the usage of the server.
    pub(crate) fn add_to(self, mut sample: Sample) -> io::Result<Sample> {
        let used = self.closed?.since(self.opened?);
        add_usage(&mut sample, self.pid, used)?;
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
