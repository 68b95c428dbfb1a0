//! The last step of a close: bytes that have arrived and were not taken are read and dropped.
//!
//! A TCP socket that is closed while it has unread bytes, or that gets bytes after it was closed, resets the connection. The reset discards what
//! this kernel has not delivered yet, although `shutdown` has returned `Ok`. So a stream that was dropped ends its sending direction, drops what
//! arrives, and is closed once nothing can be lost any more. It waits for acknowledgements as long as the linger, and reads a bounded number
//! of bytes; then it closes all the same.
#![allow(unsafe_code)]

use super::{Shared, Stream, Streams, carriers};
use crate::base::io::Io;
use crate::timers::{Instant, TimerAction, TimerKey};
use annulus_driver::SlotId;
use annulus_kernel::{Shutdown, SocketOption};
use rustix::io::Errno;
use rustix::net::AddressFamily;
use std::time::Duration;

/// Bytes that are dropped before a peer that goes on sending gets a reset.
const MAX_DROPPED_BYTES: usize = 4 << 20;
/// Bytes that are read at a time, into memory of the stack.
const PIECE_BYTES: usize = 16 * 1024;
/// How long the end of the peer is awaited once it has acknowledged everything.
const MAX_WAIT_FOR_END: Duration = Duration::from_secs(1);
/// The time between two looks for acknowledgements, which no event reports. It doubles.
const FIRST_LOOK: Duration = Duration::from_millis(1);
const LAST_LOOK: Duration = Duration::from_millis(100);

/// A close that waits.
pub(super) struct ClosingWait {
    began: Instant,
    /// Bytes that were dropped.
    dropped: usize,
    /// The peer may lack bytes that were sent.
    is_unacknowledged: bool,
    /// The descriptor may be closed, once nothing is in flight.
    is_over: bool,
    pause: Duration,
    pub(super) timer: Option<TimerKey>,
}

/// What a look at the socket has found.
enum Found {
    /// The end of the peer, or an error.
    End,
    /// So many bytes, which were dropped.
    Bytes(usize),
}

impl Stream {
    /// Drops what has arrived; true if the descriptor may be closed now. Otherwise an event or a timer will ask again. Nothing of the stream
    /// is in flight.
    pub(super) fn can_close(&mut self, shared: &Shared, io: &mut Io) -> bool {
        let is_open = self.tx.error.is_none() && self.rx.end.is_none();
        // Another process may read from a descriptor that was lent.
        if !is_open || carriers::is_pipe(self) || io.is_exposed(self.fd) {
            return true;
        }
        if self.look_before_close(io) || shared.is_ending {
            return true;
        }
        // The peer sees the end now, and not when the descriptor is closed.
        if !self.tx.ended {
            self.tx.ended = true;
            // It fails if the peer has reset the connection meanwhile.
            _ = io.driver.kernel().shutdown(self.fd, Shutdown::Write);
        }
        self.poll_readiness(io);
        self.set_close_timer(io);
        false
    }

    /// Drops what has arrived; true if the close need not wait for more.
    fn look_before_close(&mut self, io: &mut Io) -> bool {
        if self.closing_wait.as_ref().is_some_and(|wait| wait.is_over) {
            return true;
        }
        let before = self.closing_wait.as_ref().map_or(0, |wait| wait.dropped);
        let Found::Bytes(count) = self.drop_arrived(io, MAX_DROPPED_BYTES - before) else {
            return true;
        };
        let dropped = before + count;
        if dropped >= MAX_DROPPED_BYTES || !self.is_tcp(io) {
            return true;
        }
        let is_unacknowledged = io.driver.kernel().unacknowledged(self.fd) > 0;
        // Usually nothing is unread, and the peer has everything.
        if dropped == 0 && !is_unacknowledged && !self.tx.ending {
            return true;
        }
        let now = io.now();
        let wait = self.closing_wait.get_or_insert_with(|| Box::new(ClosingWait::new(now)));
        (wait.dropped, wait.is_unacknowledged) = (dropped, is_unacknowledged);
        let linger = io.bounds.linger;
        let limit = if is_unacknowledged { linger } else { linger.min(MAX_WAIT_FOR_END) };
        now.duration_since(wait.began) >= limit
    }

    /// Other streams lose nothing by a close: their peer has at once what was sent.
    fn is_tcp(&self, io: &Io) -> bool {
        let domain = || io.driver.kernel().option(self.fd, SocketOption::Domain);
        self.peer.is_some()
            || domain().is_ok_and(|is| is != u32::from(AddressFamily::UNIX.as_raw()))
    }

    /// Reads and drops at most about so many bytes.
    fn drop_arrived(&self, io: &Io, most: usize) -> Found {
        let mut memory = [0; PIECE_BYTES];
        let mut dropped = 0;
        while dropped < most {
            let (buffer, len) = (memory.as_mut_ptr(), PIECE_BYTES as u32);
            // SAFETY: the memory is this function's own, and as long.
            match unsafe { io.driver.kernel().receive(self.fd, buffer, len) } {
                Ok(count @ 1..) => dropped += count as usize,
                Err(Errno::AGAIN | Errno::NOMEM | Errno::NOBUFS) => break,
                Ok(0) | Err(_) => return Found::End,
            }
        }
        Found::Bytes(dropped)
    }

    fn set_close_timer(&mut self, io: &mut Io) {
        let Some(wait) = &mut self.closing_wait else { return };
        if wait.timer.is_none() {
            let at = io.now() + wait.pause;
            wait.pause = (2 * wait.pause).min(LAST_LOOK);
            wait.timer = Some(io.timers.insert(at, TimerAction::Close(self.id)));
        }
    }

    /// The close waits no longer: what it has in flight is cancelled.
    pub(super) fn end_closing_wait(&mut self, io: &mut Io) {
        if let Some(wait) = &mut self.closing_wait {
            wait.is_over = true;
            wait.timer.take().into_iter().for_each(|key| drop(io.timers.remove(key)));
            self.stop_recv(io);
        }
    }

    /// The peer may lack bytes that were sent, and the close waits for them.
    pub(super) fn awaits_acknowledgement(&self) -> bool {
        let is_awaited = |wait: &ClosingWait| wait.is_unacknowledged && !wait.is_over;
        self.closing_wait.as_deref().is_some_and(is_awaited)
    }
}

impl ClosingWait {
    fn new(began: Instant) -> Self {
        Self {
            began,
            dropped: 0,
            is_unacknowledged: false,
            is_over: false,
            pause: FIRST_LOOK,
            timer: None,
        }
    }
}

impl Streams {
    /// Looks again whether a close that waits has to wait longer.
    pub(crate) fn on_close_timer(&mut self, io: &mut Io, id: SlotId) {
        let Some(stream) = self.slots.find(id) else { return };
        let Some(wait) = &mut stream.closing_wait else { return };
        wait.timer = None;
        if stream.look_before_close(io) {
            stream.end_closing_wait(io);
            self.close_if_done(io, id.index);
        } else {
            stream.set_close_timer(io);
        }
    }
}
