//! The state of annulus on this thread.

use annulus::{Guest, GuestNext};
use std::cell::RefCell;
use std::io;
use std::task::Waker;

pub(crate) enum State {
    None,
    Idle(Guest),
    /// A turn is running and owns the guest.
    Turning,
    /// A turn is running and owns the guest, which ends after the turn.
    Ending,
}

thread_local! {
    pub(crate) static STATE: RefCell<State> = const { RefCell::new(State::None) };
}

/// Takes a turn of this thread's guest. Returns `None` if it has none.
pub(crate) fn turn(host: &Waker) -> Option<io::Result<GuestNext>> {
    let state = STATE.with(|state| std::mem::replace(&mut *state.borrow_mut(), State::Turning));
    let State::Idle(mut guest) = state else {
        STATE.with(|place| *place.borrow_mut() = state);
        return None;
    };
    let next = guest.turn(host);
    STATE.with(|state| {
        let mut state = state.borrow_mut();
        match &*state {
            State::Ending => *state = State::None,
            _ => *state = State::Idle(guest),
        }
    });
    Some(next)
}
