//! A client on a thread of its own, with blocking calls.
//!
//! A message costs one send and one receive. A poll is added only if the socket has no space for all of a message, or
//! if the next message has a due time: a server may reply to a long message before it has all of it, so a client that
//! kept sending without receiving could deadlock.

use super::client::{MAX_SLEEP, MISMATCH_WAIT};
use super::pool::CLOSE_TIMEOUT;
use super::window::Window;
use crate::clock;
use crate::fault::Fault;
use crate::metrics::Recorder;
use crate::payload::Payload;
use crate::schedule::Claim;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// Bytes per receive.
const BUFFER: usize = 64 << 10;

/// One connection and its messages.
pub(crate) struct Client {
    number: usize,
    /// Shared with the main thread, which shuts it down to end a blocked receive.
    stream: Arc<OwnedFd>,
    to_send: Payload,
    expected: Payload,
    window: Window,
    recorder: Recorder,
    reply_timeout: Duration,
    /// Bytes counted as sent for which the socket had no space yet.
    unsent: usize,
    /// When the last bytes were sent or received.
    last_activity: u64,
}

impl Client {
    pub(crate) fn new(
        number: usize,
        stream: Arc<OwnedFd>,
        payload: Payload,
        window: Window,
        recorder: Recorder,
        reply_timeout: Duration,
    ) -> Client {
        let last_activity = clock::nanos();
        let (to_send, expected) = (payload, payload);
        Client {
            number,
            stream,
            to_send,
            expected,
            window,
            recorder,
            reply_timeout,
            unsent: 0,
            last_activity,
        }
    }

    /// Exchanges messages until the run is over. A failure ends the client and is recorded.
    pub(crate) fn run(mut self) {
        if let Err(fault) = self.exchange().and_then(|()| self.close()) {
            self.recorder.metrics().record_fault(self.number, self.window.in_flight(), &fault);
        }
    }

    fn exchange(&mut self) -> Result<(), Fault> {
        let limited = self.limit_receives(self.reply_timeout);
        limited.map_err(|error| Fault::transfer(&error.into()))?;
        let mut buffer = vec![0; BUFFER];
        while self.recorder.metrics().is_open() || self.window.outstanding() > 0 {
            let due = self.send_due()?;
            if self.window.outstanding() == 0 && due.is_none() {
                // The run has just ended.
                break;
            }
            if self.unsent == 0 && due.is_none() {
                // Nothing to do except wait for a reply, so the receive may block.
                self.receive(&mut buffer, RecvFlags::empty())?;
            } else if self.await_either(due)? {
                self.receive(&mut buffer, RecvFlags::DONTWAIT)?;
            }
        }
        Ok(())
    }

    /// Makes a blocking receive fail after this time.
    fn limit_receives(&self, limit: Duration) -> Result<(), Errno> {
        set_socket_timeout(&self.stream, Timeout::Recv, Some(limit))
    }

    /// Sends what is due and the socket has space for; returns the due time of the next message, if it is in the
    /// future.
    fn send_due(&mut self) -> Result<Option<u64>, Fault> {
        if self.unsent == 0 && self.recorder.metrics().is_open() {
            match self.window.claim(clock::nanos) {
                Claim::Send(bytes) => self.unsent = bytes,
                Claim::NotBefore(at) => return Ok(Some(at)),
                Claim::Full => {}
            }
        }
        self.send_what_fits()?;
        Ok(None)
    }

    fn send_what_fits(&mut self) -> Result<(), Fault> {
        while self.unsent > 0 {
            let piece = self.to_send.piece(self.unsent);
            match send(&self.stream, piece, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(count) => {
                    self.to_send.advance(count);
                    self.unsent -= count;
                    self.last_activity = clock::nanos();
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(Fault::transfer(&error.into())),
            }
        }
        Ok(())
    }

    /// Waits until the socket is ready, or until `due`; returns whether there may be something to receive.
    fn await_either(&mut self, due: Option<u64>) -> Result<bool, Fault> {
        let limit = self.patience()?;
        let until_due =
            |at: u64| Duration::from_nanos(at.saturating_sub(clock::nanos())).min(MAX_SLEEP);
        let limit = due.map_or(limit, |at| limit.min(until_due(at)));
        let mut flags = PollFlags::IN;
        flags.set(PollFlags::OUT, self.unsent > 0);
        let mut events = [PollFd::new(&self.stream, flags)];
        match poll(&mut events, Timespec::try_from(limit).ok().as_ref()) {
            Ok(_) => Ok(events[0].revents().intersects(!PollFlags::OUT)),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(Fault::transfer(&error.into())),
        }
    }

    /// How long the server may still take for the next byte.
    fn patience(&self) -> Result<Duration, Fault> {
        if self.window.outstanding() == 0 {
            return Ok(self.reply_timeout);
        }
        let idle = Duration::from_nanos(clock::nanos() - self.last_activity);
        match self.reply_timeout.checked_sub(idle) {
            Some(left) if !left.is_zero() => Ok(left),
            _ => Err(Fault::reply_timeout(self.reply_timeout)),
        }
    }

    /// Receives once and verifies the bytes.
    fn receive(&mut self, buffer: &mut [u8], flags: RecvFlags) -> Result<(), Fault> {
        let received = match recv(&self.stream, &mut *buffer, flags) {
            Ok((0, _)) => return Err(self.window.closed_early()),
            Ok((received, _)) => received,
            Err(Errno::INTR) => return Ok(()),
            Err(Errno::AGAIN) if flags.contains(RecvFlags::DONTWAIT) => return Ok(()),
            Err(Errno::AGAIN) => return Err(Fault::reply_timeout(self.reply_timeout)),
            Err(error) => return Err(Fault::transfer(&error.into())),
        };
        let outstanding = self.window.outstanding();
        if received > outstanding {
            return Err(Fault::too_many_bytes(received - outstanding));
        }
        if let Err(at) = self.expected.check(&buffer[..received]) {
            let wrong = self.window.wrong_byte(at);
            return Err(self.classify_mismatch(buffer, outstanding - received, wrong));
        }
        self.last_activity = clock::nanos();
        let (now, recorder) = (self.last_activity, &mut self.recorder);
        self.window.receive(received, || now, |times, now| recorder.record_times(times, now));
        Ok(())
    }

    /// Distinguishes wrong bytes from too many: a reply sent twice looks wrong at first, but then more arrives than
    /// expected.
    #[cold]
    fn classify_mismatch(&self, buffer: &mut [u8], mut outstanding: usize, wrong: Fault) -> Fault {
        if self.limit_receives(MISMATCH_WAIT).is_err() {
            return wrong;
        }
        while let Ok((received @ 1.., _)) = recv(&self.stream, &mut *buffer, RecvFlags::empty()) {
            match outstanding.checked_sub(received) {
                Some(rest) => outstanding = rest,
                None => return Fault::too_many_bytes(received - outstanding),
            }
        }
        wrong
    }

    /// Half-closes and waits for the server's close; any further byte is an error. Every reply has arrived, so it does
    /// not matter how the connection ends.
    fn close(&self) -> Result<(), Fault> {
        let limit = CLOSE_TIMEOUT.min(self.reply_timeout);
        let ready =
            shutdown(&self.stream, Shutdown::Write).is_ok() && self.limit_receives(limit).is_ok();
        match recv(&self.stream, &mut [0; 64], RecvFlags::empty()) {
            Ok((received @ 1.., _)) if ready => Err(Fault::too_many_bytes(received)),
            _ => Ok(()),
        }
    }
}
