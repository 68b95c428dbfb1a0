//! A client on the runtime: a connection, and a task that sends, receives and verifies.

use super::connect::Connection;
use super::window::Window;
use crate::clock;
use crate::fault::Fault;
use crate::join;
use crate::metrics::{Metrics, Recorder};
use crate::payload::Payload;
use crate::schedule::Claim;
use annulus::net::{RecvHalf, SendHalf};
use annulus::time;
use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// How long to wait for more bytes after a wrong one.
pub(crate) const MISMATCH_WAIT: Duration = Duration::from_millis(100);

/// The longest sleep before the next message of an open loop; bounds how late a client notices the end of the run.
pub(crate) const MAX_SLEEP: Duration = Duration::from_millis(20);

/// What the sweep sees of a client.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    changes: Cell<u64>,
    in_flight: Cell<u64>,
    closing: Cell<bool>,
}

impl Activity {
    /// How often bytes were sent or received.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.get()
    }

    /// Messages without a complete reply.
    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight.get()
    }

    /// Whether every reply has arrived and only the server's close is awaited.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.get()
    }

    fn update(&self, window: &Window) {
        self.changes.set(self.changes.get().wrapping_add(1));
        self.in_flight.set(window.in_flight());
    }
}

/// One connection and its messages.
pub(crate) struct Client {
    number: usize,
    receiver: RecvHalf,
    sender: SendHalf,
    payload: Payload,
    window: RefCell<Window>,
    recorder: Recorder,
    activity: Rc<Activity>,
}

impl Client {
    pub(crate) fn new(
        number: usize,
        (receiver, sender): Connection,
        payload: Payload,
        window: Window,
        recorder: Recorder,
    ) -> Client {
        let (window, activity) = (RefCell::new(window), Rc::default());
        Client { number, receiver, sender, payload, window, recorder, activity }
    }

    pub(crate) fn activity(&self) -> Rc<Activity> {
        Rc::clone(&self.activity)
    }

    /// Exchanges messages until the run is over. A failure ends the client and is recorded.
    pub(crate) async fn run(mut self) {
        let mut ended = self.exchange().await;
        if ended.is_ok() {
            ended = self.close().await;
        }
        if let Err(fault) = ended {
            self.recorder.metrics().record_fault(self.number, self.activity.in_flight(), &fault);
        }
    }

    /// Sends and receives concurrently: a server may reply to a long message before it has all of it.
    async fn exchange(&mut self) -> Result<(), Fault> {
        let Client { receiver, sender, payload, window, recorder, activity, .. } = self;
        let (payload, window, activity) = (*payload, &*window, &**activity);
        let metrics = Arc::clone(recorder.metrics());
        let receiving = receive_loop(receiver, payload, window, recorder, activity);
        let sending = send_loop(sender, payload, window, &metrics, activity);
        // Receiving is polled first: a reply frees a slot that sending can use in the same turn.
        join::until(receiving, sending, || window.borrow().outstanding() == 0).await
    }

    /// Half-closes and waits for the server's close; any further byte is an error. Every reply has arrived, so it does
    /// not matter how the connection ends.
    async fn close(&mut self) -> Result<(), Fault> {
        self.activity.closing.set(true);
        if self.sender.shutdown().await.is_err() {
            return Ok(());
        }
        match self.receiver.recv().await {
            Ok(Some(lease)) => Err(Fault::too_many_bytes(lease.len())),
            Ok(None) | Err(_) => Ok(()),
        }
    }
}

/// Sends as many messages at once as the window allows, until the run is over.
async fn send_loop(
    sender: &mut SendHalf,
    mut payload: Payload,
    window: &RefCell<Window>,
    metrics: &Metrics,
    activity: &Activity,
) -> Result<(), Fault> {
    while let Some(bytes) = wait_to_send(window, metrics).await {
        activity.update(&window.borrow());
        send_all(sender, &mut payload, bytes).await?;
    }
    Ok(())
}

/// Waits until messages may be sent, and returns their bytes; `None` when the run is over.
async fn wait_to_send(window: &RefCell<Window>, metrics: &Metrics) -> Option<usize> {
    while metrics.is_open() {
        let claim = window.borrow_mut().claim(clock::nanos);
        match claim {
            Claim::Send(bytes) => return Some(bytes),
            Claim::NotBefore(at) => {
                let wait = Duration::from_nanos(at.saturating_sub(clock::nanos()));
                time::sleep(wait.min(MAX_SLEEP)).await;
            }
            // Only a reply frees a slot. The same task receives it, and polls this again.
            Claim::Full => {
                poll_fn(|_| match window.borrow().has_room() || !metrics.is_open() {
                    true => Poll::Ready(()),
                    false => Poll::Pending,
                })
                .await;
            }
        }
    }
    None
}

/// Sends the next `bytes` of a payload.
pub(crate) async fn send_all(
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

/// Receives and verifies bytes, until the first failure.
async fn receive_loop(
    receiver: &mut RecvHalf,
    mut payload: Payload,
    window: &RefCell<Window>,
    recorder: &mut Recorder,
    activity: &Activity,
) -> Result<Infallible, Fault> {
    loop {
        let lease = receiver.recv().await.map_err(|error| Fault::transfer(&error))?;
        let Some(lease) = lease else { return Err(window.borrow().closed_early()) };
        let outstanding = window.borrow().outstanding();
        if lease.len() > outstanding {
            return Err(Fault::too_many_bytes(lease.len() - outstanding));
        }
        if let Err(at) = payload.check(&lease) {
            let wrong = window.borrow().wrong_byte(at);
            return Err(
                Box::pin(classify_mismatch(receiver, outstanding - lease.len(), wrong)).await
            );
        }
        let record = |times, now| recorder.record_times(times, now);
        window.borrow_mut().receive(lease.len(), clock::nanos, record);
        activity.update(&window.borrow());
    }
}

/// Distinguishes wrong bytes from too many: a reply sent twice looks wrong at first, but then more arrives than
/// expected.
#[cold]
async fn classify_mismatch(receiver: &mut RecvHalf, mut outstanding: usize, wrong: Fault) -> Fault {
    while let Ok(Ok(Some(lease))) = time::timeout(MISMATCH_WAIT, receiver.recv()).await {
        match outstanding.checked_sub(lease.len()) {
            Some(rest) => outstanding = rest,
            None => return Fault::too_many_bytes(lease.len() - outstanding),
        }
    }
    wrong
}
