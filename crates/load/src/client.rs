//! One client on the runtime: a connection, and a task that sends, waits and checks.

use crate::board::{Board, Pad};
use crate::clock;
use crate::connect::Connection;
use crate::fault::Fault;
use crate::join;
use crate::pattern::Tape;
use crate::window::{Claim, Window};
use annulus::net::{RecvHalf, SendHalf};
use annulus::time;
use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// How long to wait for more bytes once one was wrong.
pub(crate) const JUDGING: Duration = Duration::from_millis(100);

/// The longest sleep until the next message of an open loop: how soon a client notices the end of the run.
pub(crate) const NAP: Duration = Duration::from_millis(20);

/// What the sweep sees of a client.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    beats: Cell<u64>,
    owed: Cell<u64>,
    parting: Cell<bool>,
}

impl Pulse {
    /// How often something has gone or come.
    pub(crate) fn beats(&self) -> u64 {
        self.beats.get()
    }

    /// Messages whose replies are awaited.
    pub(crate) fn owed(&self) -> u64 {
        self.owed.get()
    }

    /// Whether all replies are there, and only the server's close is awaited.
    pub(crate) fn is_parting(&self) -> bool {
        self.parting.get()
    }

    fn beat(&self, window: &Window) {
        self.beats.set(self.beats.get().wrapping_add(1));
        self.owed.set(window.under_way());
    }
}

/// One connection, its messages and its time.
pub(crate) struct Client {
    number: usize,
    receiver: RecvHalf,
    sender: SendHalf,
    tape: Tape,
    window: RefCell<Window>,
    pad: Pad,
    pulse: Rc<Pulse>,
}

impl Client {
    pub(crate) fn new(
        number: usize,
        (receiver, sender): Connection,
        tape: Tape,
        window: Window,
        pad: Pad,
    ) -> Client {
        let (window, pulse) = (RefCell::new(window), Rc::default());
        Client { number, receiver, sender, tape, window, pad, pulse }
    }

    pub(crate) fn pulse(&self) -> Rc<Pulse> {
        Rc::clone(&self.pulse)
    }

    /// Message after message until the run is over; a failure ends this client and goes on the board.
    pub(crate) async fn run(mut self) {
        let mut ended = self.converse().await;
        if ended.is_ok() {
            ended = self.part().await;
        }
        if let Err(fault) = ended {
            self.pad.board().fault(self.number, self.pulse.owed(), &fault);
        }
    }

    /// Sends and receives at the same time: the server of a long message answers before it has all of it.
    async fn converse(&mut self) -> Result<(), Fault> {
        let Client { receiver, sender, tape, window, pad, pulse, .. } = self;
        let (tape, window, pulse) = (*tape, &*window, &**pulse);
        let board = Arc::clone(pad.board());
        let listening = listen(receiver, tape, window, pad, pulse);
        let speaking = speak(sender, tape, window, &board, pulse);
        // A reply frees a place that can be spoken for in the same turn, so listening comes first.
        join::until(listening, speaking, || window.borrow().owed() == 0).await
    }

    /// Half-closes and waits for the server's close: a byte that still comes is one too many. How the connection ends is
    /// the server's affair, as every reply is there.
    async fn part(&mut self) -> Result<(), Fault> {
        self.pulse.parting.set(true);
        if self.sender.shutdown().await.is_err() {
            return Ok(());
        }
        match self.receiver.recv().await {
            Ok(Some(lease)) => Err(Fault::surplus(lease.len())),
            Ok(None) | Err(_) => Ok(()),
        }
    }
}

/// Sends what the window has room for, all of it in one go, until the run is over.
async fn speak(
    sender: &mut SendHalf,
    mut tape: Tape,
    window: &RefCell<Window>,
    board: &Board,
    pulse: &Pulse,
) -> Result<(), Fault> {
    while let Some(messages) = turn_to_speak(window, board).await {
        let bytes = window.borrow_mut().send(messages);
        pulse.beat(&window.borrow());
        send_all(sender, &mut tape, bytes).await?;
    }
    Ok(())
}

/// Waits until messages may be sent, and tells how many; `None` when the run is over.
async fn turn_to_speak(window: &RefCell<Window>, board: &Board) -> Option<usize> {
    while board.is_open() {
        let claim = window.borrow().claim(clock::nanos);
        match claim {
            Claim::Messages(messages) => return Some(messages),
            Claim::NotBefore(at) => {
                let wait = Duration::from_nanos(at.saturating_sub(clock::nanos()));
                time::sleep(wait.min(NAP)).await;
            }
            // Listening goes on in the same task: its reply is what this waits for, and polls it again.
            Claim::Full => {
                poll_fn(|_| match window.borrow().has_room() || !board.is_open() {
                    true => Poll::Ready(()),
                    false => Poll::Pending,
                })
                .await;
            }
        }
    }
    None
}

/// Sends so many bytes of a tape.
pub(crate) async fn send_all(
    sender: &mut SendHalf,
    tape: &mut Tape,
    mut bytes: usize,
) -> Result<(), Fault> {
    while bytes > 0 {
        let piece = tape.piece(bytes);
        sender.send(piece).await.map_err(|error| Fault::transfer(&error))?;
        tape.advance(piece.len());
        bytes -= piece.len();
    }
    Ok(())
}

/// Checks what comes, until something is wrong with it.
async fn listen(
    receiver: &mut RecvHalf,
    mut tape: Tape,
    window: &RefCell<Window>,
    pad: &mut Pad,
    pulse: &Pulse,
) -> Result<Infallible, Fault> {
    loop {
        let lease = receiver.recv().await.map_err(|error| Fault::transfer(&error))?;
        let Some(lease) = lease else { return Err(window.borrow().broken_off()) };
        let owed = window.borrow().owed();
        if lease.len() > owed {
            return Err(Fault::surplus(lease.len() - owed));
        }
        if let Err(at) = tape.check(&lease) {
            let wrong = window.borrow().wrong(at);
            return Err(Box::pin(judge(receiver, owed - lease.len(), wrong)).await);
        }
        let note = |latency, now| pad.note(latency, now);
        window.borrow_mut().receive(lease.len(), clock::nanos, note);
        pulse.beat(&window.borrow());
    }
}

/// Tells wrong bytes from too many: what was sent twice can look wrong at first, but then more comes than is owed.
#[cold]
async fn judge(receiver: &mut RecvHalf, mut owed: usize, wrong: Fault) -> Fault {
    while let Ok(Ok(Some(lease))) = time::timeout(JUDGING, receiver.recv()).await {
        match owed.checked_sub(lease.len()) {
            Some(rest) => owed = rest,
            None => return Fault::surplus(lease.len() - owed),
        }
    }
    wrong
}
