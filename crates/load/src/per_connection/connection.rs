//! One connection and its message.

use crate::exchange::{Plain, Sources, connect};
use crate::fault::Fault;
use crate::payload::Payload;
use crate::plan::Plan;
use crate::{clock, join};
use annulus::net::{RecvHalf, SendHalf};
use annulus::time;
use std::cell::Cell;
use std::convert::Infallible;
use std::future::poll_fn;
use std::task::Poll;

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
    let connected = connect(plan, Sources::Many, number).await;
    let connection = connected.map_err(|error| Fault::connect(&error))?;
    let connected = clock::nanos();
    let mut receiver = exchange(plan, number, connection).await?;
    let ended = clock::nanos();
    expect_no_more(&mut receiver).await?;
    Ok(Times { echo: ended - connected, total: ended - began })
}

/// Sends and receives concurrently: a server may reply to a long message before it has all of it.
async fn exchange(plan: &Plan, number: usize, connection: Plain) -> Result<RecvHalf, Fault> {
    let (mut receiver, mut sender) = connection.split();
    let mut payload = Payload::new(plan.seed, number, plan.length);
    let outstanding = Cell::new(plan.length);
    let receiving = receive_loop(&mut receiver, payload, &outstanding, plan);
    let sending = async { send_all(&mut sender, &mut payload, plan.length).await };
    join::until(receiving, sending, || outstanding.get() == 0).await?;
    Ok(receiver)
}

/// Sends the next `bytes` of a payload.
async fn send_all(
    sender: &mut SendHalf,
    payload: &mut Payload,
    mut bytes: usize,
) -> Result<(), Fault> {
    while bytes > 0 {
        let piece = payload.piece(bytes);
        sender.send(piece).await.map_err(|error| Fault::transfer(&error))?;
        payload.advance(piece.len());
        bytes -= piece.len();
    }
    Ok(())
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
