//! What the server asks of io_uring: settings that the other ways to serve do not have.

use super::Mode;
use crate::usage::Misuse;
use annulus::{Builder, DriverChoice, Operations};
use clap::Args;

/// The options that need a ring.
#[derive(Args, Clone, Debug)]
pub(super) struct RingArgs {
    /// Let io_uring do only what the server needs, and deny this process any
    /// further ring
    #[arg(long)]
    pub(super) locked_down: bool,
    /// Which operations carry the bytes: multishot, readv-writev,
    /// recvmsg-sendmsg, read-write or recv-send; with poll- before it, a
    /// receive waits for readiness before its first try
    #[arg(long, value_name = "NAME", default_value_t)]
    pub(super) ops: Operations,
}

impl RingArgs {
    pub(super) fn configure(&self, builder: Builder) -> Builder {
        builder.locked_down(self.locked_down).operations(self.ops)
    }

    /// Refuses what was asked of a ring where there will be none.
    pub(super) fn check(&self, mode: Mode) -> Result<(), Misuse> {
        let (driver, asked) = match mode {
            Mode::Threads => ("threads", self.locked().or(self.asked())),
            // A process on epoll can be denied every ring, too.
            Mode::Tasks(DriverChoice::Epoll) => ("epoll", self.asked()),
            Mode::Tasks(_) => return Ok(()),
        };
        asked.map_or(Ok(()), |option| {
            let text = format!(
                "{option} is for io_uring, and --driver {driver} has no ring; leave one of them out"
            );
            Err(Misuse(text))
        })
    }

    fn locked(&self) -> Option<String> {
        self.locked_down.then(|| "--locked-down".into())
    }

    fn asked(&self) -> Option<String> {
        (self.ops != Operations::default()).then(|| format!("--ops {}", self.ops))
    }
}
