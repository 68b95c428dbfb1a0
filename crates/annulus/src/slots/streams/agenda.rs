//! What the turn has to do for streams: lists of slots.

use crate::memory::Memory;
use crate::slots::arming::ArmList;
use crate::slots::slot_id::SlotId;
use std::collections::VecDeque;

/// What the turn has to do for streams before it enters the kernel. Each list has a slot at most once, but for `held_back`.
#[derive(Default)]
pub(super) struct Agenda {
    /// Streams with something to send.
    pub(super) sends: Vec<u32>,
    /// Streams to arm.
    pub(super) arms: ArmList,
    /// Linked streams whose bytes were sent from a pipe: they go on.
    pub(super) resumed: Vec<SlotId>,
    /// Streams whose send went out in this turn: done, unless an event says otherwise.
    pub(super) unsettled: Vec<u32>,
    /// A task waits for one of the unsettled: no sleep before they are settled.
    pub(super) must_settle: bool,
    pub(super) held_back: HeldBack,
    pub(super) heard: Heard,
}

/// Streams that hold more than the memory limit leaves each of them, in order. Among them are slots that have been reused.
#[derive(Default)]
pub(super) struct HeldBack {
    pub(super) slots: VecDeque<u32>,
    /// Of these, how many are to be looked at; and the allowance when that began.
    pub(super) sweep: usize,
    pub(super) swept_at: usize,
    pub(super) has_timer: bool,
}

impl HeldBack {
    pub(super) fn new(memory: &Memory) -> Self {
        Self { swept_at: memory.allowance, ..Self::default() }
    }
}

/// Streams that have received: see `silent`.
#[derive(Default)]
pub(super) struct Heard {
    /// In this period.
    pub(super) now: Vec<SlotId>,
    /// In the one before.
    pub(super) before: Vec<SlotId>,
    pub(super) has_timer: bool,
}

impl Heard {
    pub(super) fn has_any(&self) -> bool {
        !(self.now.is_empty() && self.before.is_empty())
    }
}
