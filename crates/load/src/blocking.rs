//! One client on a thread of its own: it sends, blocks until bytes come, and checks them.
//!
//! A message costs a send and a receive. Only where a socket has no room for all of a message, or the next one has its
//! own time, a poll comes between: the server of a long message answers before it has all of it, and a client that went
//! on sending without listening would wait for ever.

use crate::board::Pad;
use crate::client::{JUDGING, NAP};
use crate::clock;
use crate::crew::PARTING;
use crate::fault::Fault;
use crate::pattern::Tape;
use crate::window::{Claim, Window};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// How many bytes are received at once.
const BUFFER: usize = 64 << 10;

/// One connection, its messages and its time.
pub(crate) struct Client {
    number: usize,
    /// Its run may shut it down, to end a receive that blocks.
    stream: Arc<OwnedFd>,
    saying: Tape,
    hearing: Tape,
    window: Window,
    pad: Pad,
    reply_timeout: Duration,
    /// Bytes counted as sent that the socket has had no room for.
    unsent: usize,
    /// When something last went or came.
    last_beat: u64,
}

impl Client {
    pub(crate) fn new(
        number: usize,
        stream: Arc<OwnedFd>,
        tape: Tape,
        window: Window,
        pad: Pad,
        reply_timeout: Duration,
    ) -> Client {
        let last_beat = clock::nanos();
        let (saying, hearing) = (tape, tape);
        Client { number, stream, saying, hearing, window, pad, reply_timeout, unsent: 0, last_beat }
    }

    /// Message after message until the run is over; a failure ends this client and goes on the board.
    pub(crate) fn run(mut self) {
        if let Err(fault) = self.converse().and_then(|()| self.part()) {
            self.pad.board().fault(self.number, self.window.under_way(), &fault);
        }
    }

    fn converse(&mut self) -> Result<(), Fault> {
        let limited = self.limit_receives(self.reply_timeout);
        limited.map_err(|error| Fault::transfer(&error.into()))?;
        let mut buffer = vec![0; BUFFER];
        while self.pad.board().is_open() || self.window.owed() > 0 {
            let due = self.speak()?;
            if self.window.owed() == 0 && due.is_none() {
                // The run ended just now.
                break;
            }
            if self.unsent == 0 && due.is_none() {
                // Nothing to do but to wait for a reply: the receive itself may block.
                self.listen(&mut buffer, RecvFlags::empty())?;
            } else if self.await_either(due)? {
                self.listen(&mut buffer, RecvFlags::DONTWAIT)?;
            }
        }
        Ok(())
    }

    /// Has a receive that finds nothing end after so long.
    fn limit_receives(&self, limit: Duration) -> Result<(), Errno> {
        set_socket_timeout(&self.stream, Timeout::Recv, Some(limit))
    }

    /// Sends what may be sent and the socket has room for; returns the time of the next message, where it has one.
    fn speak(&mut self) -> Result<Option<u64>, Fault> {
        if self.unsent == 0 && self.pad.board().is_open() {
            match self.window.claim(clock::nanos) {
                Claim::Messages(messages) => self.unsent = self.window.send(messages),
                Claim::NotBefore(at) => return Ok(Some(at)),
                Claim::Full => {}
            }
        }
        self.send_what_fits()?;
        Ok(None)
    }

    fn send_what_fits(&mut self) -> Result<(), Fault> {
        while self.unsent > 0 {
            let piece = self.saying.piece(self.unsent);
            match send(&self.stream, piece, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(count) => {
                    self.saying.advance(count);
                    self.unsent -= count;
                    self.last_beat = clock::nanos();
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(Fault::transfer(&error.into())),
            }
        }
        Ok(())
    }

    /// Waits until the socket can go on, or until `due`; whether there may be something to hear.
    fn await_either(&mut self, due: Option<u64>) -> Result<bool, Fault> {
        let limit = self.patience()?;
        let nap = |at: u64| Duration::from_nanos(at.saturating_sub(clock::nanos())).min(NAP);
        let limit = due.map_or(limit, |at| limit.min(nap(at)));
        let mut flags = PollFlags::IN;
        flags.set(PollFlags::OUT, self.unsent > 0);
        let mut events = [PollFd::new(&self.stream, flags)];
        match poll(&mut events, Timespec::try_from(limit).ok().as_ref()) {
            Ok(_) => Ok(events[0].revents().intersects(!PollFlags::OUT)),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(Fault::transfer(&error.into())),
        }
    }

    /// How long the server may still keep silent.
    fn patience(&self) -> Result<Duration, Fault> {
        if self.window.owed() == 0 {
            return Ok(self.reply_timeout);
        }
        let quiet = Duration::from_nanos(clock::nanos() - self.last_beat);
        match self.reply_timeout.checked_sub(quiet) {
            Some(left) if !left.is_zero() => Ok(left),
            _ => Err(Fault::silence(self.reply_timeout)),
        }
    }

    /// Receives once, and checks what came.
    fn listen(&mut self, buffer: &mut [u8], flags: RecvFlags) -> Result<(), Fault> {
        let came = match recv(&self.stream, &mut *buffer, flags) {
            Ok((0, _)) => return Err(self.window.broken_off()),
            Ok((came, _)) => came,
            Err(Errno::INTR) => return Ok(()),
            Err(Errno::AGAIN) if flags.contains(RecvFlags::DONTWAIT) => return Ok(()),
            Err(Errno::AGAIN) => return Err(Fault::silence(self.reply_timeout)),
            Err(error) => return Err(Fault::transfer(&error.into())),
        };
        let owed = self.window.owed();
        if came > owed {
            return Err(Fault::surplus(came - owed));
        }
        if let Err(at) = self.hearing.check(&buffer[..came]) {
            let wrong = self.window.wrong(at);
            return Err(self.judge(buffer, owed - came, wrong));
        }
        self.last_beat = clock::nanos();
        let (now, pad) = (self.last_beat, &mut self.pad);
        self.window.receive(came, || now, |latency, now| pad.note(latency, now));
        Ok(())
    }

    /// Tells wrong bytes from too many: what was sent twice can look wrong at first, but then more comes than is owed.
    #[cold]
    fn judge(&self, buffer: &mut [u8], mut owed: usize, wrong: Fault) -> Fault {
        if self.limit_receives(JUDGING).is_err() {
            return wrong;
        }
        while let Ok((came @ 1.., _)) = recv(&self.stream, &mut *buffer, RecvFlags::empty()) {
            match owed.checked_sub(came) {
                Some(rest) => owed = rest,
                None => return Fault::surplus(came - owed),
            }
        }
        wrong
    }

    /// Half-closes and waits for the server's close: a byte that still comes is one too many. How the connection ends is
    /// the server's affair, as every reply is there.
    fn part(&self) -> Result<(), Fault> {
        let limit = PARTING.min(self.reply_timeout);
        let ready =
            shutdown(&self.stream, Shutdown::Write).is_ok() && self.limit_receives(limit).is_ok();
        match recv(&self.stream, &mut [0; 64], RecvFlags::empty()) {
            Ok((came @ 1.., _)) if ready => Err(Fault::surplus(came)),
            _ => Ok(()),
        }
    }
}
