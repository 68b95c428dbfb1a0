//! One connection and its message.

use crate::fault::Fault;
use crate::payload::Payload;
use crate::plan::Plan;
use crate::server_address::ServerAddress;
use crate::streams::{Connection, connect_unix, send_all};
use crate::{clock, join};
use annulus::net::{ConnectOptions, RecvHalf, TcpStream};
use annulus::time;
use std::cell::Cell;
use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::task::Poll;

/// Source addresses of the clients of an IPv4 loopback server.
pub const SOURCE_ADDRESSES: usize = 16;

/// How long one connection took, in ns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// From the send to the last byte.
    pub(crate) echo: u64,
    /// From before the connect to the last byte.
    pub(crate) total: u64,
}

/// Connects, sends one message, receives and verifies its reply, and closes.
pub(super) async fn run_one(plan: &Plan, number: usize) -> Result<Times, Fault> {
    let began = clock::nanos();
    let connection = connect(plan, number).await.map_err(|error| Fault::connect(&error))?;
    let connected = clock::nanos();
    let mut receiver = exchange(plan, number, connection).await?;
    let ended = clock::nanos();
    expect_no_more(&mut receiver).await?;
    Ok(Times { echo: ended - connected, total: ended - began })
}

async fn connect(plan: &Plan, number: usize) -> io::Result<Connection> {
    let address = match &plan.address {
        ServerAddress::Inet(address) => *address,
        ServerAddress::Unix(path) => return connect_unix(path, plan.connect_timeout).await,
    };
    let mut options = ConnectOptions::new().timeout(plan.connect_timeout);
    if let Some(source) = source(address.ip(), number) {
        options = options.source(source);
    }
    options.connect(address).await.map(TcpStream::split)
}

/// The source address of a connection, unless the kernel may choose it.
fn source(server: IpAddr, number: usize) -> Option<IpAddr> {
    let local = server.is_ipv4() && server.is_loopback();
    local.then(|| Ipv4Addr::new(127, 0, 0, 1 + (number % SOURCE_ADDRESSES) as u8).into())
}

/// Sends and receives concurrently: a server may reply to a long message before it has all of it.
async fn exchange(
    plan: &Plan,
    number: usize,
    (mut receiver, mut sender): Connection,
) -> Result<RecvHalf, Fault> {
    let mut payload = Payload::new(plan.seed, number, plan.length);
    let outstanding = Cell::new(plan.length);
    let receiving = receive_loop(&mut receiver, payload, &outstanding, plan);
    let sending = async { send_all(&mut sender, &mut payload, plan.length).await };
    join::until(receiving, sending, || outstanding.get() == 0).await?;
    Ok(receiver)
}

async fn receive_loop(
    receiver: &mut RecvHalf,
    mut payload: Payload,
    outstanding: &Cell<usize>,
    plan: &Plan,
) -> Result<Infallible, Fault> {
    loop {
        let received = plan.length - outstanding.get();
        let lease = time::timeout(plan.reply_timeout, receiver.recv()).await;
        let lease = lease.map_err(|_| Fault::reply_timeout(plan.reply_timeout))?;
        let lease = lease.map_err(|error| Fault::transfer(&error))?;
        let lease = lease.ok_or_else(|| Fault::closed_early(received, plan.length))?;
        if lease.len() > outstanding.get() {
            return Err(Fault::too_many_bytes(lease.len() - outstanding.get()));
        }
        payload.check(&lease).map_err(|at| Fault::wrong_byte(received + at, plan.length))?;
        outstanding.set(outstanding.get() - lease.len());
    }
}

/// Fails if bytes beyond the reply have already arrived; does not wait for any.
async fn expect_no_more(receiver: &mut RecvHalf) -> Result<(), Fault> {
    poll_fn(|cx| match receiver.poll_recv(cx) {
        Poll::Ready(Ok(Some(lease))) => Poll::Ready(Err(Fault::too_many_bytes(lease.len()))),
        // The reply is complete, so it does not matter how the server closes the connection.
        _ => Poll::Ready(Ok(())),
    })
    .await
}
