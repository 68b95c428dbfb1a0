//! Which cores a comparison runs on.

use crate::usage::Misuse;
use annulus_lab::cores::Cores;
use annulus_load::affinity;
use anyhow::{Context, Result};
use clap::Args;

/// A core for the servers and one for the load.
#[derive(Args, Clone, Copy, Debug)]
pub(super) struct Pins {
    /// The core of the servers [default: the first that may be used]
    #[arg(long, value_name = "CPU")]
    server_pin: Option<usize>,
    /// The core of the load [default: one that shares nothing with the servers']
    #[arg(long, value_name = "CPU")]
    load_pin: Option<usize>,
}

/// A core for those who send and one for those who receive.
#[derive(Args, Clone, Copy, Debug)]
pub(super) struct EndPins {
    /// The core of the senders [default: one that shares nothing with the
    /// receivers']
    #[arg(long, value_name = "CPU")]
    pub(super) sender_pin: Option<usize>,
    /// The core of the receivers [default: the first that may be used]
    #[arg(long, value_name = "CPU")]
    pub(super) receiver_pin: Option<usize>,
}

/// One core for everybody.
#[derive(Args, Clone, Copy, Debug)]
pub(super) struct Pin {
    /// The core of all of them [default: the first that may be used]
    #[arg(long, value_name = "CPU")]
    pin: Option<usize>,
}

impl Pins {
    /// The cores that may be used, and those that will be.
    pub(super) fn choose(self) -> Result<(Vec<usize>, Cores)> {
        let allowed = allowed()?;
        check("--server-pin", self.server_pin, &allowed)?;
        check("--load-pin", self.load_pin, &allowed)?;
        let cores = Cores::choose(&allowed, self.server_pin, self.load_pin);
        Ok((allowed, cores))
    }
}

impl EndPins {
    /// The cores that may be used, and those that will be: the receivers' as the server's.
    pub(super) fn choose(self) -> Result<(Vec<usize>, Cores)> {
        let allowed = allowed()?;
        check("--sender-pin", self.sender_pin, &allowed)?;
        check("--receiver-pin", self.receiver_pin, &allowed)?;
        let cores = Cores::choose(&allowed, self.receiver_pin, self.sender_pin);
        Ok((allowed, cores))
    }
}

impl Pin {
    /// The cores that may be used, and the one that will be.
    pub(super) fn choose(self) -> Result<(Vec<usize>, usize)> {
        let allowed = allowed()?;
        check("--pin", self.pin, &allowed)?;
        let core = Cores::choose(&allowed, self.pin, None).server;
        Ok((allowed, core))
    }
}

fn allowed() -> Result<Vec<usize>> {
    affinity::allowed().context("cannot tell which cores may be used")
}

fn check(flag: &str, pin: Option<usize>, allowed: &[usize]) -> Result<()> {
    let Some(core) = pin.filter(|core| !allowed.contains(core)) else { return Ok(()) };
    let list = allowed.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    Err(Misuse(format!("{flag} {core}: this process may use {list}")).into())
}
