//! A client on a thread of its own, with blocking calls.
//!
//! A message costs one send and one receive. A poll is added only if the socket has no space for all of a message, or
//! if the next message has a due time: a server may reply to a long message before it has all of it, so a client that
//! kept sending without receiving could deadlock.

use super::shared::Batch;
use crate::clock;
use crate::exchange::{Echo, Exchange, Messages, Outgoing};
use crate::fault::{Fault, Kind};
use crate::schedule::{Claim, Pacer};
use crate::streams::client::MISMATCH_WAIT;
use crate::streams::pool::CLOSE_TIMEOUT;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// Bytes per receive.
const BUFFER: usize = 64 << 10;

/// The longest wait for the next message of an open loop; bounds how late a client notices the end of the run.
const MAX_SLEEP: Duration = Duration::from_millis(20);

/// One connection and its messages.
pub(crate) struct Client {
    number: usize,
    /// Shared with the main thread, which shuts it down to end a blocked receive.
    stream: Arc<OwnedFd>,
    exchange: Echo,
    /// Messages that are written, of which the socket has taken so many bytes.
    out: Messages,
    accepted: usize,
    pacer: Pacer,
    batch: Batch,
    reply_timeout: Duration,
    /// When the last bytes were sent or received.
    last_activity: u64,
}

impl Client {
    pub(crate) fn new(
        number: usize,
        stream: Arc<OwnedFd>,
        exchange: Echo,
        pacer: Pacer,
        batch: Batch,
        reply_timeout: Duration,
    ) -> Client {
        Client {
            number,
            stream,
            exchange,
            out: Messages::default(),
            accepted: 0,
            pacer,
            batch,
            reply_timeout,
            last_activity: clock::nanos(),
        }
    }

    /// Exchanges messages until the run is over. A failure ends the client and is recorded.
    pub(crate) fn run(mut self) {
        if let Err(fault) = self.exchange().and_then(|()| self.close()) {
            let requests = self.pacer.in_flight() as u64;
            self.batch.run().record_fault(self.number, requests, &fault);
        }
    }

    fn exchange(&mut self) -> Result<(), Fault> {
        let limited = self.limit_receives(self.reply_timeout);
        limited.map_err(|error| Fault::transfer(&error.into()))?;
        let mut buffer = vec![0; BUFFER];
        while self.batch.run().is_open() || self.pacer.in_flight() > 0 {
            let due = self.send_due()?;
            if self.pacer.in_flight() == 0 && due.is_none() {
                // The run has just ended.
                break;
            }
            if self.out.len() == 0 && due.is_none() {
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
        if self.out.len() == 0 && self.batch.run().is_open() {
            match self.pacer.claim(usize::MAX, clock::nanos) {
                Claim::Send(messages) => self.write(messages),
                Claim::NotBefore(at) => return Ok(Some(at)),
                Claim::Full => {}
            }
        }
        self.send_what_fits()?;
        Ok(None)
    }

    /// Writes messages, to be sent.
    fn write(&mut self, messages: usize) {
        for _ in 0..messages {
            self.exchange.request(&mut self.out);
        }
    }

    fn send_what_fits(&mut self) -> Result<(), Fault> {
        while self.accepted < self.out.len() {
            let piece = self.out.piece(self.accepted);
            match send(&self.stream, piece.bytes(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(count) => {
                    self.accepted += count;
                    self.last_activity = clock::nanos();
                }
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(Fault::transfer(&error.into())),
            }
        }
        self.out.clear();
        self.accepted = 0;
        Ok(())
    }

    /// Waits until the socket is ready, or until `due`; returns whether there may be something to receive.
    fn await_either(&mut self, due: Option<u64>) -> Result<bool, Fault> {
        let limit = self.patience()?;
        let until_due =
            |at: u64| Duration::from_nanos(at.saturating_sub(clock::nanos())).min(MAX_SLEEP);
        let limit = due.map_or(limit, |at| limit.min(until_due(at)));
        let mut flags = PollFlags::IN;
        flags.set(PollFlags::OUT, self.out.len() > 0);
        let mut events = [PollFd::new(&self.stream, flags)];
        match poll(&mut events, Timespec::try_from(limit).ok().as_ref()) {
            Ok(_) => Ok(events[0].revents().intersects(!PollFlags::OUT)),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(Fault::transfer(&error.into())),
        }
    }

    /// How long the server may still take for the next byte.
    fn patience(&self) -> Result<Duration, Fault> {
        if self.pacer.in_flight() == 0 {
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
            Ok((0, _)) => return self.exchange.closed(&mut |_| ()),
            Ok((received, _)) => received,
            Err(Errno::INTR) => return Ok(()),
            Err(Errno::AGAIN) if flags.contains(RecvFlags::DONTWAIT) => return Ok(()),
            Err(Errno::AGAIN) => return Err(Fault::reply_timeout(self.reply_timeout)),
            Err(error) => return Err(Fault::transfer(&error.into())),
        };
        self.last_activity = clock::nanos();
        let Client { exchange, pacer, batch, last_activity: now, .. } = self;
        let taken = exchange.receive(&buffer[..received], &mut |_| {
            let request = pacer.answer(*now).expect("no more comes than was sent");
            batch.record(request, *now);
        });
        taken.map_err(|fault| self.classify(buffer, fault))
    }

    /// Distinguishes wrong bytes from too many: a reply sent twice looks wrong at first, but then more arrives than
    /// expected.
    #[cold]
    fn classify(&self, buffer: &mut [u8], fault: Fault) -> Fault {
        let mut outstanding = self.exchange.outstanding().unwrap_or_default();
        if fault.kind != Kind::WrongBytes || self.limit_receives(MISMATCH_WAIT).is_err() {
            return fault;
        }
        while let Ok((received @ 1.., _)) = recv(&self.stream, &mut *buffer, RecvFlags::empty()) {
            match outstanding.checked_sub(received) {
                Some(rest) => outstanding = rest,
                None => return Fault::too_many_bytes(received - outstanding),
            }
        }
        fault
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
