//! One client: a connection, and a task that sends, waits and checks.

use crate::board::Board;
use crate::clock;
use crate::fault::Fault;
use crate::pattern::{Departure, Script, Text};
use annulus::net::{RecvHalf, SendHalf, TcpStream};
use annulus::time;
use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

/// How long to wait for more bytes once one was wrong.
const JUDGING: Duration = Duration::from_millis(100);

/// What the sweep sees of a client.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    beats: Cell<u64>,
    parting: Cell<bool>,
}

impl Pulse {
    /// How often bytes have come.
    pub(crate) fn beats(&self) -> u64 {
        self.beats.get()
    }

    /// Whether all replies are there, and only the server's close is awaited.
    pub(crate) fn is_parting(&self) -> bool {
        self.parting.get()
    }

    fn beat(&self) {
        self.beats.set(self.beats.get().wrapping_add(1));
    }
}

/// One connection in a closed loop.
pub(crate) struct Client {
    number: usize,
    receiver: RecvHalf,
    sender: SendHalf,
    script: Script,
    length: usize,
    board: Rc<Board>,
    pulse: Rc<Pulse>,
}

impl Client {
    pub(crate) fn new(
        number: usize,
        stream: TcpStream,
        script: Script,
        length: usize,
        board: Rc<Board>,
    ) -> Client {
        let (receiver, sender) = stream.split();
        Client { number, receiver, sender, script, length, board, pulse: Rc::default() }
    }

    pub(crate) fn pulse(&self) -> Rc<Pulse> {
        Rc::clone(&self.pulse)
    }

    /// Message after message until the run is over; a failure ends this client and goes on the board.
    pub(crate) async fn run(mut self) {
        if let Err(fault) = self.converse().await {
            self.board.fault(self.number, &fault);
        }
    }

    async fn converse(&mut self) -> Result<(), Fault> {
        let mut started = clock::nanos();
        while self.board.is_open() {
            self.exchange().await?;
            // The response of one message is the intended start of the next: one look at the clock does for both.
            started = self.board.answered(started);
        }
        self.part().await
    }

    /// Sends one message and receives its reply at the same time: the server of a long one answers before it has all.
    async fn exchange(&mut self) -> Result<(), Fault> {
        let text = self.script.next();
        let mut speaking = pin!(speak(&mut self.sender, text));
        let mut listening = pin!(listen(&mut self.receiver, text, self.length, &self.pulse));
        let (mut spoken, mut heard) = (false, false);
        std::future::poll_fn(|cx| {
            if !spoken && let Poll::Ready(done) = speaking.as_mut().poll(cx) {
                done?;
                spoken = true;
            }
            if !heard && let Poll::Ready(done) = listening.as_mut().poll(cx) {
                done?;
                heard = true;
            }
            if spoken && heard { Poll::Ready(Ok(())) } else { Poll::Pending }
        })
        .await
    }

    /// Half-closes and waits for the server's close: a byte that still comes is one too many. How the connection ends is
    /// the server's affair, as every reply is there.
    async fn part(&mut self) -> Result<(), Fault> {
        self.pulse.parting.set(true);
        if self.sender.shutdown().await.is_err() {
            return Ok(());
        }
        match self.receiver.recv().await {
            Ok(Some(lease)) => Err(Fault::surplus(lease.len(), self.length)),
            Ok(None) | Err(_) => Ok(()),
        }
    }
}

async fn speak(sender: &mut SendHalf, mut text: Text) -> Result<(), Fault> {
    while text.left() > 0 {
        let piece = text.piece();
        sender.send(piece).await.map_err(|error| Fault::transfer(&error))?;
        text.advance(piece.len());
    }
    Ok(())
}

async fn listen(
    receiver: &mut RecvHalf,
    mut text: Text,
    length: usize,
    pulse: &Pulse,
) -> Result<(), Fault> {
    while text.left() > 0 {
        let lease = receiver.recv().await.map_err(|error| Fault::transfer(&error))?;
        let lease = lease.ok_or_else(|| Fault::closed(text.left(), length))?;
        pulse.beat();
        let came = length - text.left() + lease.len();
        if let Err(departure) = text.check(&lease) {
            return Err(Box::pin(judge(receiver, departure, came, length)).await);
        }
    }
    Ok(())
}

/// Tells wrong bytes from too many: what was sent twice can look wrong at first, but then more comes than was asked for.
#[cold]
async fn judge(
    receiver: &mut RecvHalf,
    departure: Departure,
    mut came: usize,
    length: usize,
) -> Fault {
    while came <= length {
        match time::timeout(JUDGING, receiver.recv()).await {
            Ok(Ok(Some(lease))) => came += lease.len(),
            _ => return Fault::departed(departure, length),
        }
    }
    Fault::surplus(came - length, length)
}
