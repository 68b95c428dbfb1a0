//! Connection attempts. A slot keeps the address and the descriptor at least until the terminal
//! event, because the kernel may use them until then. Afterwards, the descriptor of an attempt that
//! has failed or was dropped is closed at once, because its local address may be needed again for
//! the next attempt.
#![allow(unsafe_code)]

use crate::slots::Waits;
use crate::slots::find_or_late;
use crate::slots::loop_state::LoopState;
use crate::timers::{Instant, TimerAction, TimerKey};
use crate::waiters::note_waker;
use annulus_driver::{Event, MemoryOp, Op, OpKind, Slab, SlotId};
use annulus_kernel::{Address, Fd, SocketOption};
use rustix::io::Errno;
use std::io;
use std::task::{Context, Poll, Waker};

struct Connect {
    fd: Fd,
    address: Box<Address>,
    outcome: Option<Result<(), Errno>>,
    timer: Option<TimerKey>,
    timed_out: bool,
    /// Whether other code has begun to connect the socket, so that a poll waits for the outcome.
    was_begun: bool,
    waker: Option<Waker>,
    dropped: bool,
}

impl Connect {
    /// Returns the outcome of an attempt that other code has begun, once the socket is writable.
    fn begun_outcome(&self, state: &LoopState) -> Result<(), Errno> {
        match state.driver.kernel().option(self.fd, SocketOption::Error) {
            Ok(0) => Ok(()),
            Ok(errno) => Err(Errno::from_raw_os_error(errno as i32)),
            Err(error) => Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
        }
    }
}

/// Connection attempts that are in flight, or whose outcome no future has taken yet.
#[derive(Default)]
pub(crate) struct Connects(Slab<Connect>);

impl Connects {
    /// Starts connecting `fd`, which the slot now owns. The attempt is cancelled at the deadline.
    pub(crate) fn start(
        &mut self,
        state: &mut LoopState,
        fd: Fd,
        address: Address,
        deadline: Option<Instant>,
    ) -> u32 {
        let attempt = Connect {
            fd,
            address: Box::new(address),
            outcome: None,
            timer: None,
            timed_out: false,
            was_begun: false,
            waker: None,
            dropped: false,
        };
        let slot = self.0.insert(attempt);
        let (id, attempt) = self.0.get_with_id(slot);
        attempt.timer = deadline.map(|at| state.timers.insert(at, TimerAction::Connect(id)));
        let bytes = attempt.address.as_bytes();
        let op = MemoryOp::Connect { fd, address: bytes.as_ptr(), len: bytes.len() as u32 };
        // SAFETY: the address is boxed, so it does not move, and its slot is freed only after the
        // terminal event.
        unsafe { state.start_memory(id.token(OpKind::Connect), op) };
        slot
    }

    /// Returns the connected descriptor or the error. Frees the slot if the result is `Ready`.
    pub(crate) fn poll(
        &mut self,
        state: &mut LoopState,
        slot: u32,
        cx: &Context<'_>,
    ) -> Poll<io::Result<Fd>> {
        let attempt = self.0.get(slot);
        let Some(outcome) = attempt.outcome else {
            note_waker(&mut attempt.waker, &mut state.deferred.drops, cx);
            return Poll::Pending;
        };
        let timed_out = attempt.timed_out;
        let fd = self.free(state, slot);
        Poll::Ready(match outcome {
            Ok(()) => Ok(fd),
            Err(errno) => {
                state.close_now(fd);
                let given_up = timed_out && errno == Errno::CANCELED;
                Err(if given_up { io::ErrorKind::TimedOut.into() } else { errno.into() })
            }
        })
    }

    pub(crate) fn on_event(&mut self, state: &mut LoopState, event: Event) {
        let Some(attempt) = find_or_late(&mut self.0, state, &event) else { return };
        state.in_flight -= 1;
        let may_wait = !attempt.dropped && !attempt.timed_out;
        attempt.outcome = Some(match event.result {
            Err(Errno::ALREADY) if may_wait => {
                attempt.was_begun = true;
                return state.start(event.token, Op::WritableOnce { fd: attempt.fd });
            }
            Ok(_) if attempt.was_begun => attempt.begun_outcome(state),
            result => result.map(drop),
        });
        state.deferred.wakes.extend(attempt.waker.take());
        if attempt.dropped {
            let fd = self.free(state, event.token.slot());
            state.close_now(fd);
        }
    }

    pub(crate) fn on_timeout(&mut self, state: &mut LoopState, id: SlotId) {
        if let Some(attempt) = self.0.find(id) {
            attempt.timer = None;
            attempt.timed_out = true;
            if attempt.outcome.is_none() {
                state.cancel(id.token(OpKind::Connect));
            }
        }
    }

    /// Handles a dropped future. Cancels an attempt in flight, and closes its descriptor at the
    /// terminal event. If the attempt has ended already, closes the descriptor at once.
    pub(crate) fn drop_connect(&mut self, state: &mut LoopState, slot: u32) {
        let (id, attempt) = self.0.get_with_id(slot);
        attempt.dropped = true;
        state.deferred.drops.extend(attempt.waker.take());
        if attempt.outcome.is_none() {
            state.cancel(id.token(OpKind::Connect));
        } else {
            let fd = self.free(state, slot);
            state.close_now(fd);
        }
    }

    /// Drops all attempts at the end of the runtime. Futures that outlive it return errors.
    pub(crate) fn stop_all(&mut self, state: &mut LoopState) {
        for slot in self.0.indices() {
            self.drop_connect(state, slot);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn add_waits(&mut self, waits: &mut Waits) {
        for attempt in self.0.values() {
            if let Some(waker) = &attempt.waker {
                waits.note(waker, || format!("to connect to {:?}", attempt.address));
            }
        }
    }

    fn free(&mut self, state: &mut LoopState, slot: u32) -> Fd {
        let attempt = self.0.remove(slot);
        if let Some(key) = attempt.timer {
            state.timers.remove(key);
        }
        attempt.fd
    }
}
