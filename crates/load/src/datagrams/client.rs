//! One client: a socket, and a task that sends and takes what comes.

use super::book::{Book, Echo, Tally};
use super::letter::{Garbled, Letter};
use super::plan::DatagramPlan;
use super::post::Post;
use crate::board::{Board, Pad};
use crate::fault::Fault;
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
    post: Post,
    letter: Letter,
    /// How many leave as one, at most.
    together: usize,
    book: RefCell<Book>,
    board: Arc<Board>,
    corrupt: Cell<u64>,
    /// Who waits for something in the book.
    waiting: RefCell<Option<Waker>>,
}

impl Client {
    /// Opens a socket, connected to the server.
    pub(super) fn open(
        plan: &DatagramPlan,
        number: usize,
        board: &Arc<Board>,
    ) -> io::Result<Client> {
        Ok(Client {
            number,
            post: Post::open(plan)?,
            letter: Letter::new(plan.seed, number, plan.length),
            together: plan.together(),
            book: RefCell::new(Book::new(plan.window)),
            board: Arc::clone(board),
            corrupt: Cell::new(0),
            waiting: RefCell::new(None),
        })
    }

    /// Datagram after datagram until the run is over and nothing is under way; a failure ends this client and goes on the
    /// board.
    pub(super) async fn run(self: Rc<Self>) {
        let mut pad = Pad::new(Arc::clone(&self.board));
        let ended = join::until(self.listen(&mut pad), self.speak(), || true).await;
        if let Err(fault) = ended {
            self.give_up_all();
            self.board.fault(self.number, 0, &fault);
        }
    }

    /// Gives up what has waited for too long; where that frees a place, or the run is over, the client goes on.
    pub(super) fn sweep(&self, now: u64, timeout: Duration) {
        let freed = self.book.borrow_mut().expire(now, timeout);
        if (freed || !self.board.is_open())
            && let Some(waker) = self.waiting.take()
        {
            waker.wake();
        }
    }

    pub(super) fn tally(&self) -> Tally {
        self.book.borrow().tally()
    }

    /// Echoes that are those of no datagram.
    pub(super) fn corrupt(&self) -> u64 {
        self.corrupt.get()
    }

    /// Sends until the run is over, and then waits until nothing is under way.
    async fn speak(&self) -> Result<(), Fault> {
        while self.place().await {
            let letters = self.write();
            self.post.send(letters).await.map_err(|error| Fault::transfer(&error))?;
        }
        self.until(|book| (book.waiting() == 0).then_some(())).await;
        Ok(())
    }

    /// The next datagrams that leave as one: one at least, for which there is a place.
    fn write(&self) -> Vec<u8> {
        let (now, counts) = (clock::nanos(), self.board.is_measuring());
        let (mut book, mut letters) = (self.book.borrow_mut(), Vec::new());
        for _ in 0..self.together {
            if !book.has_room() {
                break;
            }
            self.letter.write(book.send(now, counts), &mut letters);
        }
        letters
    }

    /// Waits for a place in the window; whether there is one, or the run is over.
    async fn place(&self) -> bool {
        self.until(|book| match self.board.is_open() {
            true => book.has_room().then_some(true),
            false => Some(false),
        })
        .await
    }

    /// Waits for something in the book. Echoes are taken in the same task; what the sweep gives up is not.
    async fn until<T>(&self, ready: impl Fn(&Book) -> Option<T>) -> T {
        poll_fn(|cx| match ready(&self.book.borrow()) {
            Some(value) => Poll::Ready(value),
            None => {
                self.waiting.replace(Some(cx.waker().clone()));
                Poll::Pending
            }
        })
        .await
    }

    async fn listen(&self, pad: &mut Pad) -> Result<Infallible, Fault> {
        loop {
            match self.post.recv().await {
                Ok(lease) => self.hear(&lease, pad),
                // It was longer than any that was sent.
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    self.note_corrupt(&error.to_string());
                }
                Err(error) => return Err(Fault::transfer(&error)),
            }
        }
    }

    fn hear(&self, lease: &Lease, pad: &mut Pad) {
        let now = clock::nanos();
        let mut book = self.book.borrow_mut();
        let echo = match self.letter.read(lease) {
            Ok(Some(number)) => book.echo(number, now),
            Ok(None) => book.echo_of_oldest(now),
            Err(Garbled::Length(came)) => {
                return self.note_corrupt(&format!("an echo has {came} bytes"));
            }
            Err(Garbled::Byte(at)) => {
                return self.note_corrupt(&format!("byte {at} of an echo is not what was sent"));
            }
        };
        match echo {
            Echo::Answer(latency) => pad.note(latency, now),
            Echo::Unknown => self.note_corrupt("an echo of a datagram that was never sent"),
            Echo::Late | Echo::Duplicate => {}
        }
    }

    fn note_corrupt(&self, what: &str) {
        self.corrupt.set(self.corrupt.get() + 1);
        self.board.fault(self.number, 0, &Fault::corrupt(what));
    }

    /// Counts what is under way as lost.
    pub(super) fn give_up_all(&self) {
        self.book.borrow_mut().expire(u64::MAX, Duration::ZERO);
    }
}
