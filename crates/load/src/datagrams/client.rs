//! A client: a socket, and a task that sends datagrams and receives echoes.

use super::in_flight::{Counts, Echo, InFlightTable};
use super::payload::{DatagramPayload, Mismatch};
use super::socket::Socket;
use crate::fault::Fault;
use crate::metrics::{Batch, Metrics};
use crate::plan::{Datagrams, Plan};
use crate::{clock, join};
use annulus::Lease;
use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

/// One socket and its datagrams.
pub(super) struct Client {
    number: usize,
    socket: Socket,
    payload: DatagramPayload,
    /// Most datagrams in one send.
    max_segments: usize,
    in_flight: RefCell<InFlightTable>,
    metrics: Arc<Metrics>,
    corrupt: Cell<u64>,
    /// The task's waker while it waits for a change in the table.
    waiting: RefCell<Option<Waker>>,
}

impl Client {
    /// Opens a socket that is connected to the server.
    pub(super) async fn open(
        plan: &Plan,
        datagrams: Datagrams,
        number: usize,
        metrics: &Arc<Metrics>,
    ) -> io::Result<Client> {
        Ok(Client {
            number,
            socket: Socket::open(plan, datagrams).await?,
            payload: DatagramPayload::new(plan.seed, number, plan.length),
            max_segments: datagrams.max_segments(plan.length),
            in_flight: RefCell::new(InFlightTable::new(datagrams.window)),
            metrics: Arc::clone(metrics),
            corrupt: Cell::new(0),
            waiting: RefCell::new(None),
        })
    }

    /// Sends datagrams until the run is over and nothing is in flight. A failure ends the client and is recorded.
    pub(super) async fn run(self: Rc<Self>) {
        let mut batch = Batch::new(Arc::clone(&self.metrics));
        let ended = join::until(self.receive_loop(&mut batch), self.send_loop(), || true).await;
        if let Err(fault) = ended {
            self.mark_all_lost();
            self.metrics.record_fault(self.number, 0, &fault);
        }
    }

    /// Marks datagrams as lost that have waited too long. If that frees a slot, or the run is over, the client is
    /// woken.
    pub(super) fn sweep(&self, now: u64, timeout: Duration) {
        let freed = self.in_flight.borrow_mut().expire(now, timeout);
        if (freed || !self.metrics.is_open())
            && let Some(waker) = self.waiting.take()
        {
            waker.wake();
        }
    }

    pub(super) fn counts(&self) -> Counts {
        Counts { corrupt: self.corrupt.get(), ..self.in_flight.borrow().counts() }
    }

    /// Sends until the run is over, then waits until nothing is in flight.
    async fn send_loop(&self) -> Result<(), Fault> {
        while self.wait_for_slot().await {
            let datagrams = self.write();
            self.socket.send(datagrams).await.map_err(|error| Fault::transfer(&error))?;
        }
        self.until(|in_flight| (in_flight.waiting() == 0).then_some(())).await;
        Ok(())
    }

    /// The datagrams of the next send: at least one, and as many as have a slot.
    fn write(&self) -> Vec<u8> {
        let (now, measured) = (clock::nanos(), self.metrics.is_measuring());
        let (mut in_flight, mut datagrams) = (self.in_flight.borrow_mut(), Vec::new());
        for _ in 0..self.max_segments {
            if !in_flight.has_room() {
                break;
            }
            self.payload.write(in_flight.send(now, measured), &mut datagrams);
        }
        datagrams
    }

    /// Waits for a free slot; false if the run is over.
    async fn wait_for_slot(&self) -> bool {
        self.until(|in_flight| match self.metrics.is_open() {
            true => in_flight.has_room().then_some(true),
            false => Some(false),
        })
        .await
    }

    /// Waits for a change in the table. The same task handles echoes; only the sweep marks datagrams as lost, and it
    /// wakes the task.
    async fn until<T>(&self, ready: impl Fn(&InFlightTable) -> Option<T>) -> T {
        poll_fn(|cx| match ready(&self.in_flight.borrow()) {
            Some(value) => Poll::Ready(value),
            None => {
                self.waiting.replace(Some(cx.waker().clone()));
                Poll::Pending
            }
        })
        .await
    }

    async fn receive_loop(&self, batch: &mut Batch) -> Result<Infallible, Fault> {
        loop {
            match self.socket.recv().await {
                Ok(lease) => self.handle_echo(&lease, batch),
                // The echo is longer than any datagram sent.
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    self.record_corrupt(&error.to_string());
                }
                Err(error) => return Err(Fault::transfer(&error)),
            }
        }
    }

    fn handle_echo(&self, lease: &Lease, batch: &mut Batch) {
        let now = clock::nanos();
        let mut in_flight = self.in_flight.borrow_mut();
        let echo = match self.payload.read(lease) {
            Ok(Some(number)) => in_flight.echo(number, now),
            Ok(None) => in_flight.echo_of_oldest(now),
            Err(Mismatch::Length(received)) => {
                return self.record_corrupt(&format!("an echo has {received} bytes"));
            }
            Err(Mismatch::Byte(at)) => {
                return self.record_corrupt(&format!("byte {at} of an echo is not what was sent"));
            }
        };
        match echo {
            Echo::Answer(latency) => batch.record_latency(latency, now),
            Echo::Unknown => self.record_corrupt("an echo of a datagram that was never sent"),
            Echo::Late | Echo::Duplicate => {}
        }
    }

    fn record_corrupt(&self, what: &str) {
        self.corrupt.set(self.corrupt.get() + 1);
        self.metrics.record_fault(self.number, 0, &Fault::corrupt(what));
    }

    /// Counts everything in flight as lost.
    pub(super) fn mark_all_lost(&self) {
        self.in_flight.borrow_mut().expire(u64::MAX, Duration::ZERO);
    }
}
