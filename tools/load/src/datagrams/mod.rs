//! The datagram workload: how many datagrams are echoed, and how fast.
//!
//! Each client has its own connected socket and keeps a fixed number of datagrams in flight. A
//! datagram that is not echoed within the timeout counts as lost and frees its slot, so loss does
//! not stall the client. A datagram of at least 8 bytes starts with a number, which determines the
//! bytes that follow, so duplicate, late, reordered and corrupt echoes are recognised. Shorter
//! datagrams are all alike, and their echoes are matched in the order of sending.

mod client;
mod in_flight;
pub(crate) mod payload;
mod socket;

use crate::fault::Fault;
use crate::findings::RunResults;
use crate::load_error::LoadError;
use crate::observer::Observer;
use crate::plan::{Datagrams, Plan};
use crate::threads::{ClientKind, RunContext, RuntimeSettings, ThreadContext};
use annulus::task::JoinHandle;
use client::DatagramClient;
use socket::Socket;
use std::rc::Rc;

/// Runs the workload. Loss is not a failure, but failed sockets and corrupt echoes are.
pub(crate) fn run(
    plan: &Plan,
    datagrams: Datagrams,
    observer: &mut dyn Observer,
) -> Result<RunResults, LoadError> {
    RunResults::of(
        &RunContext::new(plan),
        RuntimeSettings::new(datagrams.driver, 0, 0),
        observer,
        || datagrams,
    )
}

impl ClientKind for Datagrams {
    type Opened = Socket;
    type Handle = Rc<DatagramClient>;

    async fn connect(&self, plan: &Plan, _number: usize) -> Result<Socket, Fault> {
        Socket::open(plan, *self).await.map_err(|error| Fault::connect(&error))
    }

    fn start(
        context: &Rc<ThreadContext<Datagrams>>,
        number: usize,
        socket: Socket,
        _began: u64,
    ) -> (JoinHandle<()>, Rc<DatagramClient>) {
        let client = Rc::new(DatagramClient::new(context, number, socket));
        (annulus::spawn(Rc::clone(&client).run()), client)
    }
}
