//! A datagram client: a socket, and a task that sends datagrams and receives echoes.

use super::in_flight::{EchoKind, InFlightTable};
use super::payload::{DatagramPayload, Mismatch};
use super::socket::Socket;
use crate::clock;
use crate::fault::{Fault, FaultKind};
use crate::outcome::Outcome;
use crate::plan::Datagrams;
use crate::schedule::RequestTimes;
use crate::threads::{ClientHandle, ThreadContext};
use annulus::Lease;
use annulus::task::JoinHandle;
use futures_util::future::{Either, select};
use std::cell::RefCell;
use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

pub(crate) struct DatagramClient {
    number: usize,
    socket: Socket,
    payload: DatagramPayload,
    in_flight: RefCell<InFlightTable>,
    context: Rc<ThreadContext<Datagrams>>,
    /// Waker of the client's task while it waits for `in_flight` to change.
    waiting: RefCell<Option<Waker>>,
}

impl DatagramClient {
    pub(super) fn new(
        context: &Rc<ThreadContext<Datagrams>>,
        number: usize,
        socket: Socket,
    ) -> DatagramClient {
        let (plan, datagrams) = (&context.run.plan, context.kind);
        DatagramClient {
            number,
            socket,
            payload: DatagramPayload::new(plan.seed, number, plan.length),
            in_flight: RefCell::new(InFlightTable::new(datagrams.window)),
            context: Rc::clone(context),
            waiting: RefCell::new(None),
        }
    }

    /// Sends datagrams until the run is over and none is in flight. A failure ends the client and
    /// is recorded.
    pub(super) async fn run(self: Rc<Self>) {
        let ended = match select(pin!(self.receive_loop()), pin!(self.send_loop())).await {
            Either::Left((Ok(never), _)) => match never {},
            Either::Left((Err(fault), _)) => Err(fault),
            Either::Right((sent, _)) => sent,
        };
        if let Err(fault) = ended {
            self.mark_all_lost();
            self.context.run.faults.record(self.number, &fault);
        }
    }

    /// Sends until the run is over, then waits until no datagram is in flight.
    async fn send_loop(&self) -> Result<(), Fault> {
        while self.wait_for_slot().await {
            self.socket.send(self.write()).await.map_err(|error| Fault::transfer(&error))?;
        }
        self.wait_until(|in_flight| (in_flight.waiting() == 0).then_some(())).await;
        Ok(())
    }

    /// Writes the next datagram.
    fn write(&self) -> Vec<u8> {
        let (now, mut recorder) = (clock::nanos(), self.context.recorder.borrow_mut());
        let (number, mut datagram) =
            (self.in_flight.borrow_mut().send(now, recorder.is_open()), Vec::new());
        self.payload.write(number, &mut datagram);
        recorder.sent(&RequestTimes::all(now));
        recorder.sent_together(annulus::turns().unwrap_or_default(), 1);
        recorder.bytes_sent(datagram.len());
        datagram
    }

    /// Waits for a free slot. Returns false if the run is over.
    async fn wait_for_slot(&self) -> bool {
        self.wait_until(|in_flight| match self.context.is_open.get() {
            true => in_flight.has_room().then_some(true),
            false => Some(false),
        })
        .await
    }

    /// Waits until `ready` returns a value. Sending and receiving share one task, so every echo
    /// checks again. A sweep that frees a slot and the end of the run wake the task through
    /// `waiting`.
    async fn wait_until<T>(&self, ready: impl Fn(&InFlightTable) -> Option<T>) -> T {
        poll_fn(|cx| match ready(&self.in_flight.borrow()) {
            Some(value) => Poll::Ready(value),
            None => {
                self.waiting.replace(Some(cx.waker().clone()));
                Poll::Pending
            }
        })
        .await
    }

    async fn receive_loop(&self) -> Result<Infallible, Fault> {
        loop {
            match self.socket.recv().await {
                Ok(lease) => self.handle_echo(&lease),
                // The echo is longer than any datagram that was sent.
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    self.record_corrupt(&error.to_string());
                }
                Err(error) => return Err(Fault::transfer(&error)),
            }
        }
    }

    fn handle_echo(&self, lease: &Lease) {
        let now = clock::nanos();
        let echo = match self.payload.read(lease) {
            Ok(Some(number)) => self.in_flight.borrow_mut().echo(number, now),
            Ok(None) => self.in_flight.borrow_mut().echo_of_oldest(now),
            Err(Mismatch::Length(received)) => {
                return self.record_corrupt(&format!(
                    "an echo has {received} bytes, which is not the length that was sent"
                ));
            }
            Err(Mismatch::Byte(at)) => {
                return self
                    .record_corrupt(&format!("byte {at} of an echo differs from the one sent"));
            }
        };
        match echo {
            EchoKind::Answer(latency) => {
                let mut recorder = self.context.recorder.borrow_mut();
                recorder.answered(RequestTimes::all(now.saturating_sub(latency)), Outcome::Ok, now);
                recorder.bytes_received(lease.len());
            }
            EchoKind::Unknown => {
                self.record_corrupt("an echo has the number of a datagram that was never sent")
            }
            EchoKind::Late | EchoKind::Duplicate => {}
        }
    }

    fn record_corrupt(&self, what: &str) {
        self.in_flight.borrow_mut().count_corrupt();
        self.context.run.faults.record(self.number, &Fault::new(FaultKind::CORRUPT, what));
    }

    /// Counts everything in flight as lost.
    fn mark_all_lost(&self) {
        self.in_flight.borrow_mut().expire(u64::MAX, Duration::ZERO);
    }
}

impl ClientHandle for Rc<DatagramClient> {
    /// Marks datagrams that have waited too long as lost, and records the counts since the last
    /// sweep. Wakes the client if a slot was freed or the run is over.
    fn sweep(&mut self, _task: &mut JoinHandle<()>, timeout: Duration) {
        let freed = self.in_flight.borrow_mut().expire(clock::nanos(), timeout);
        self.context.recorder.borrow_mut().datagrams(self.in_flight.borrow_mut().take_counts());
        if freed || !self.context.is_open.get() {
            self.on_window_closed();
        }
    }

    fn on_window_closed(&self) {
        if let Some(waker) = self.waiting.take() {
            waker.wake();
        }
    }

    fn give_up(&self) {
        let measured = self.in_flight.borrow_mut().give_up();
        self.context.recorder.borrow_mut().cut_off(measured);
    }
}
