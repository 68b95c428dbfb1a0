//! The objects that the kernel works on, each with a slot: streams, datagram sockets, listeners,
//! connection attempts, polls, file calls, NOPs.

mod arming;
pub(crate) mod connection_limit;
pub(crate) mod connects;
pub(crate) mod datagrams;
pub(crate) mod file_ops;
pub(crate) mod listeners;
pub(crate) mod loop_state;
pub(crate) mod polls;
pub(crate) mod streams;
pub(crate) mod turn_lists;
pub(crate) mod waits;

use crate::slots::loop_state::LoopState;
use annulus_driver::{Event, Slab};

/// Returns the slot of an event. A late event, whose slot has moved on, is counted and its
/// resources are reclaimed.
#[inline]
pub(crate) fn find_or_late<'a, T>(
    slots: &'a mut Slab<T>,
    state: &mut LoopState,
    event: &Event,
) -> Option<&'a mut T> {
    let slot = slots.find(event.token.id());
    if slot.is_none() {
        state.late(*event);
    }
    slot
}
