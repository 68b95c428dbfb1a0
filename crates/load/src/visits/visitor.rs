//! One visit.

use super::plan::VisitPlan;
use crate::client::send_all;
use crate::connect::{Connection, connect_unix};
use crate::fault::Fault;
use crate::pattern::Tape;
use crate::place::Place;
use crate::{clock, join};
use annulus::net::{ConnectOptions, RecvHalf, TcpStream};
use annulus::time;
use std::cell::Cell;
use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::task::Poll;

/// Addresses that the clients of an IPv4 loopback server come from.
pub const SOURCES: usize = 16;

/// How long one visit took, in ns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// From the send to the last byte.
    pub(super) echo: u64,
    /// From before the connect to the last byte.
    pub(super) visit: u64,
}

/// Connects, sends, receives all of it, checks it; the connection closes at the end.
pub(super) async fn visit(plan: &VisitPlan, number: usize) -> Result<Times, Fault> {
    let began = clock::nanos();
    let connection = connect(plan, number).await.map_err(|error| Fault::connect(&error))?;
    let connected = clock::nanos();
    let mut receiver = exchange(plan, number, connection).await?;
    let ended = clock::nanos();
    no_more(&mut receiver).await?;
    Ok(Times { echo: ended - connected, visit: ended - began })
}

async fn connect(plan: &VisitPlan, number: usize) -> io::Result<Connection> {
    let address = match &plan.address {
        Place::Inet(address) => *address,
        Place::Unix(path) => return connect_unix(path, plan.connect_timeout).await,
    };
    let mut options = ConnectOptions::new().timeout(plan.connect_timeout);
    if let Some(source) = source(address.ip(), number) {
        options = options.source(source);
    }
    options.connect(address).await.map(TcpStream::split)
}

/// Where a visit comes from, where it matters.
fn source(server: IpAddr, number: usize) -> Option<IpAddr> {
    let local = server.is_ipv4() && server.is_loopback();
    local.then(|| Ipv4Addr::new(127, 0, 0, 1 + (number % SOURCES) as u8).into())
}

/// Sends and receives at the same time: the server of a long message answers before it has all of it.
async fn exchange(
    plan: &VisitPlan,
    number: usize,
    (mut receiver, mut sender): Connection,
) -> Result<RecvHalf, Fault> {
    let mut tape = Tape::new(plan.seed, number, plan.length);
    let owed = Cell::new(plan.length);
    let listening = listen(&mut receiver, tape, &owed, plan);
    let speaking = async { send_all(&mut sender, &mut tape, plan.length).await };
    join::until(listening, speaking, || owed.get() == 0).await?;
    Ok(receiver)
}

async fn listen(
    receiver: &mut RecvHalf,
    mut tape: Tape,
    owed: &Cell<usize>,
    plan: &VisitPlan,
) -> Result<Infallible, Fault> {
    loop {
        let came = plan.length - owed.get();
        let lease = time::timeout(plan.reply_timeout, receiver.recv()).await;
        let lease = lease.map_err(|_| Fault::silence(plan.reply_timeout))?;
        let lease = lease.map_err(|error| Fault::transfer(&error))?;
        let lease = lease.ok_or_else(|| Fault::closed(came, plan.length))?;
        if lease.len() > owed.get() {
            return Err(Fault::surplus(lease.len() - owed.get()));
        }
        tape.check(&lease).map_err(|at| Fault::wrong(came + at, plan.length))?;
        owed.set(owed.get() - lease.len());
    }
}

/// Looks once for bytes beyond the reply, without waiting for any.
async fn no_more(receiver: &mut RecvHalf) -> Result<(), Fault> {
    poll_fn(|cx| match receiver.poll_recv(cx) {
        Poll::Ready(Ok(Some(lease))) => Poll::Ready(Err(Fault::surplus(lease.len()))),
        // How the connection ends is the server's affair, as all of the reply is there.
        _ => Poll::Ready(Ok(())),
    })
    .await
}
