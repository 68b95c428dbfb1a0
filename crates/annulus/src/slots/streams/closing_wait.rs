//! The last step of closing a stream: reading and dropping received bytes that nobody has taken.
//!
//! A TCP socket that is closed with unread bytes, or that receives bytes after it was closed,
//! resets the connection. The reset discards sent bytes that the peer has not received yet,
//! although `shutdown` returned `Ok`. So a stream ends its sending direction, drops what arrives,
//! and is closed once nothing can be lost any longer. It waits for acknowledgements for at most the
//! linger and reads a bounded number of bytes, and then closes anyway. If other code may use the
//! descriptor too, the stream only waits for acknowledgements.
#![allow(unsafe_code)]

use super::{Stream, StreamResources, Streams, carriers};
use crate::slots::loop_state::LoopState;
use crate::timers::{Instant, TimerAction, TimerKey};
use annulus_driver::SlotId;
use annulus_kernel::{Shutdown, SocketOption};
use rustix::io::Errno;
use rustix::net::AddressFamily;
use std::time::Duration;

/// Number of dropped bytes after which the stream is closed anyway. A peer that keeps sending then
/// gets a reset.
const MAX_DROPPED_BYTES: usize = 4 << 20;
/// Bytes per read, into memory on the stack.
const DRAIN_READ_BYTES: usize = 16 * 1024;
/// Maximum duration of a close whose sent bytes have all been acknowledged, so that it waits only
/// for the peer's EOF.
const MAX_WAIT_FOR_END: Duration = Duration::from_secs(1);
/// Delay before the first check for acknowledgements, which no event reports. The delay doubles
/// with each check, up to `MAX_CHECK_DELAY`.
const FIRST_CHECK_DELAY: Duration = Duration::from_millis(1);
const MAX_CHECK_DELAY: Duration = Duration::from_millis(100);

/// State of a close that waits for the peer.
pub(super) struct ClosingWait {
    began: Instant,
    /// Bytes dropped so far.
    dropped: usize,
    /// Whether the peer has not acknowledged all sent bytes yet.
    is_unacknowledged: bool,
    /// Whether the wait has ended, so that the descriptor may be closed once nothing is in flight.
    is_over: bool,
    pause: Duration,
    pub(super) timer: Option<TimerKey>,
}

enum DrainOutcome {
    /// EOF or an error.
    End,
    /// The number of bytes read and dropped.
    Bytes(usize),
}

impl Stream {
    /// Returns true if the descriptor may be closed now. Otherwise an event or a timer checks
    /// again. May drop what has arrived. No operation of the stream may be in flight.
    pub(super) fn can_close(&mut self, shared: &StreamResources, state: &mut LoopState) -> bool {
        let is_open = self.tx.error.is_none() && self.rx.end.is_none();
        if !is_open || carriers::is_pipe(self) {
            return true;
        }
        if self.look_before_close(state) || shared.is_ending {
            return true;
        }
        if state.is_exposed(self.fd) {
            self.set_close_timer(state);
            return false;
        }
        // The peer should see EOF now, not only when the descriptor is closed.
        if !self.tx.ended {
            self.tx.ended = true;
            // The call fails if the peer has reset the connection in the meantime.
            _ = state.driver.kernel().shutdown(self.fd, Shutdown::Write);
        }
        self.poll_readiness(state);
        self.set_close_timer(state);
        false
    }

    /// Drops what has arrived and returns true if the close need not wait any longer.
    fn look_before_close(&mut self, state: &mut LoopState) -> bool {
        if self.closing_wait.as_ref().is_some_and(|wait| wait.is_over) {
            return true;
        }
        if state.is_exposed(self.fd) {
            return self.look_at_exposed(state);
        }
        let before = self.closing_wait.as_ref().map_or(0, |wait| wait.dropped);
        let DrainOutcome::Bytes(count) = self.drop_arrived(state, MAX_DROPPED_BYTES - before)
        else {
            return true;
        };
        let dropped = before + count;
        if dropped >= MAX_DROPPED_BYTES || !self.is_tcp(state) {
            return true;
        }
        let is_unacknowledged = state.driver.kernel().unacknowledged(self.fd) > 0;
        // No wait is needed if the socket had no unread bytes, the peer has acknowledged everything
        // and the stream was not shut down.
        if dropped == 0 && !is_unacknowledged && !self.tx.ending {
            return true;
        }
        let now = state.now();
        let wait = self.closing_wait.get_or_insert_with(|| Box::new(ClosingWait::new(now)));
        (wait.dropped, wait.is_unacknowledged) = (dropped, is_unacknowledged);
        let linger = state.bounds.linger;
        let limit = if is_unacknowledged { linger } else { linger.min(MAX_WAIT_FOR_END) };
        now.duration_since(wait.began) >= limit
    }

    /// Returns true if the close of an exposed descriptor need not wait any longer. Other code may
    /// have duplicated it and still use it, so nothing is dropped and no direction is ended: the
    /// close waits only until the peer has acknowledged everything.
    fn look_at_exposed(&mut self, state: &LoopState) -> bool {
        if !self.is_tcp(state) || state.driver.kernel().unacknowledged(self.fd) == 0 {
            return true;
        }
        let now = state.now();
        let wait = self.closing_wait.get_or_insert_with(|| Box::new(ClosingWait::new(now)));
        wait.is_unacknowledged = true;
        now.duration_since(wait.began) >= state.bounds.linger
    }

    /// Returns true for TCP. Other streams lose nothing when they are closed: sent bytes reach
    /// their peer at once.
    fn is_tcp(&self, state: &LoopState) -> bool {
        let domain = || state.driver.kernel().option(self.fd, SocketOption::Domain);
        self.peer.is_some()
            || domain().is_ok_and(|is| is != u32::from(AddressFamily::UNIX.as_raw()))
    }

    /// Reads and drops up to about `most` bytes.
    fn drop_arrived(&self, state: &LoopState, most: usize) -> DrainOutcome {
        let mut memory = [0; DRAIN_READ_BYTES];
        let mut dropped = 0;
        while dropped < most {
            let (buffer, len) = (memory.as_mut_ptr(), DRAIN_READ_BYTES as u32);
            // SAFETY: the buffer is a local array of `len` bytes.
            match unsafe { state.driver.kernel().receive(self.fd, buffer, len) } {
                Ok(count @ 1..) => dropped += count as usize,
                Err(Errno::AGAIN | Errno::NOMEM | Errno::NOBUFS) => break,
                Ok(0) | Err(_) => return DrainOutcome::End,
            }
        }
        DrainOutcome::Bytes(dropped)
    }

    fn set_close_timer(&mut self, state: &mut LoopState) {
        let Some(wait) = &mut self.closing_wait else { return };
        if wait.timer.is_none() {
            let at = state.now() + wait.pause;
            wait.pause = (2 * wait.pause).min(MAX_CHECK_DELAY);
            wait.timer = Some(state.timers.insert(at, TimerAction::Close(self.id)));
        }
    }

    /// Ends the wait and cancels its readiness poll and its timer.
    pub(super) fn end_closing_wait(&mut self, state: &mut LoopState) {
        if let Some(wait) = &mut self.closing_wait {
            wait.is_over = true;
            wait.timer.take().into_iter().for_each(|key| drop(state.timers.remove(key)));
            state.deferred.wakes.extend(self.rx.waker.take());
            self.stop_recv(state);
        }
    }

    /// Returns true if the close waits for the peer to acknowledge sent bytes.
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
            pause: FIRST_CHECK_DELAY,
            timer: None,
        }
    }
}

impl Streams {
    /// Checks whether a waiting close has to wait longer.
    pub(crate) fn on_close_timer(&mut self, state: &mut LoopState, id: SlotId) {
        let Some(stream) = self.slots.find(id) else { return };
        let Some(wait) = &mut stream.closing_wait else { return };
        wait.timer = None;
        if stream.look_before_close(state) {
            stream.end_closing_wait(state);
            self.close_if_done(state, id.index);
        } else {
            stream.set_close_timer(state);
        }
    }
}
