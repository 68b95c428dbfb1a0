//! One connection and its message.

use crate::fault::Fault;
use crate::payload::Payload;
use crate::plan::Plan;
use crate::recording::Phases;
use crate::schedule::Times;
use crate::wire::{Plain, Sources, connect};
use crate::{clock, join};
use annulus::net::{RecvHalf, SendHalf};
use annulus::time;
use std::cell::Cell;
use std::convert::Infallible;
use std::future::poll_fn;
use std::task::Poll;

/// One connection: when it began, in ns of [`crate::clock`], and how long its phases took.
pub(super) struct Connected {
    /// From before the connect; sent once connected.
    pub(super) request: Times,
    /// When the last byte of the reply had come.
    pub(super) ended: u64,
    pub(super) phases: Phases<u64>,
}

/// Connects, sends one message, receives and verifies its reply, and closes. `sent` is called once it is connected.
pub(super) async fn run_one(
    plan: &Plan,
    number: usize,
    sent: impl FnOnce(&Times),
) -> Result<Connected, Fault> {
    let began = clock::nanos();
    let connection = connect(plan, Sources::Many, number).await;
    let connection = connection.map_err(|error| Fault::connect(&error))?;
    let connected = clock::nanos();
    sent(&Times::all(connected));
    let (mut receiver, sender, accepted) = exchange(plan, number, connection).await?;
    let ended = clock::nanos();
    expect_no_more(&mut receiver).await?;
    drop((receiver, sender));
    let phases = Phases {
        connect: connected - began,
        send: accepted - connected,
        receive: ended.saturating_sub(accepted),
        close: clock::nanos() - ended,
    };
    let request = Times { due: began, ..Times::all(connected) };
    Ok(Connected { request, ended, phases })
}

/// Sends and receives concurrently: a server may reply to a long message before it has received all. Returns when the last byte was
/// accepted to be sent, too.
async fn exchange(
    plan: &Plan,
    number: usize,
    connection: Plain,
) -> Result<(RecvHalf, SendHalf, u64), Fault> {
    let (mut receiver, mut sender) = connection.split();
    let mut payload = Payload::new(plan.seed, number, plan.length);
    let (outstanding, accepted) = (Cell::new(plan.length), Cell::new(0));
    let receiving = receive_loop(&mut receiver, payload, &outstanding, plan);
    let sending = async {
        let sent = send_all(&mut sender, &mut payload, plan.length).await;
        accepted.set(clock::nanos());
        sent
    };
    join::until(receiving, sending, || outstanding.get() == 0).await?;
    Ok((receiver, sender, accepted.get()))
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
