//! A ring, from the kernel's side.

use super::restrict::Restrictions;
use crate::buffers::BufferGroup;
use crate::memory::Queues;
use crate::op::OpId;
use annulus_ring::{Completion, SetupFlags};
use std::collections::VecDeque;

/// `IORING_SQ_NEED_WAKEUP`
const NEED_WAKEUP: u32 = 1 << 0;
/// `IORING_SQ_CQ_OVERFLOW`
const OVERFLOW: u32 = 1 << 1;
/// `IORING_SQ_TASKRUN`
const TASKRUN: u32 = 1 << 2;

pub(super) struct Ring {
    pub(super) queues: Queues,
    pub(super) setup: SetupFlags,
    pub(super) enabled: bool,
    /// What it may do once it is enabled.
    pub(super) restricted: Option<Restrictions>,
    /// Its file is gone; the memory stays while it is mapped.
    pub(super) ended: bool,
    pub(super) mappings: u32,
    groups: Vec<BufferGroup>,
    /// Operations whose turn has come.
    work: VecDeque<OpId>,
    /// Completions that found no room.
    overflow: VecDeque<Completion>,
}

impl Ring {
    pub(super) fn new(queues: Queues, setup: SetupFlags) -> Self {
        // A thread that polls sleeps whenever nobody waits: each submission has to wake it.
        queues.flag(NEED_WAKEUP, setup.contains(SetupFlags::SQPOLL));
        Self {
            queues,
            setup,
            enabled: !setup.contains(SetupFlags::R_DISABLED),
            restricted: None,
            ended: false,
            mappings: 0,
            groups: Vec::new(),
            work: VecDeque::new(),
            overflow: VecDeque::new(),
        }
    }

    /// The restrictions that hold now.
    #[inline]
    pub(super) fn restrictions(&self) -> Option<&Restrictions> {
        self.restricted.as_ref().filter(|_| self.enabled)
    }

    /// Work runs only in an enter that asks for it.
    #[inline]
    pub(super) fn defers(&self) -> bool {
        self.setup.contains(SetupFlags::DEFER_TASKRUN)
    }

    /// A thread takes the entries.
    #[inline]
    pub(super) fn polls(&self) -> bool {
        self.setup.contains(SetupFlags::SQPOLL)
    }

    /// Posts a completion; true where it had to go into the overflow list. Behind others there, it waits as well.
    #[inline]
    pub(super) fn post(&mut self, completion: Completion) -> bool {
        if self.post_more(completion) {
            return false;
        }
        self.overflow.push_back(completion);
        self.queues.flag(OVERFLOW, true);
        true
    }

    /// Posts a completion where there is room and none waits for some.
    #[inline]
    pub(super) fn post_more(&mut self, completion: Completion) -> bool {
        self.overflow.is_empty() && self.queues.post(completion)
    }

    /// Moves waiting completions into the queue.
    #[inline]
    pub(super) fn flush_overflow(&mut self) {
        if self.overflow.is_empty() {
            return;
        }
        while let Some(&completion) = self.overflow.front()
            && self.queues.post(completion)
        {
            self.overflow.pop_front();
        }
        if self.overflow.is_empty() {
            self.queues.flag(OVERFLOW, false);
        }
    }

    pub(super) fn has_work(&self) -> bool {
        !self.work.is_empty()
    }

    pub(super) fn work(&self) -> &VecDeque<OpId> {
        &self.work
    }

    #[inline]
    pub(super) fn queue(&mut self, id: OpId) {
        self.work.push_back(id);
        if self.setup.contains(SetupFlags::TASKRUN_FLAG) {
            self.queues.flag(TASKRUN, true);
        }
    }

    /// Takes the work at `index` of the queue.
    #[inline]
    pub(super) fn take_work(&mut self, index: usize) -> Option<OpId> {
        let id = if index == 0 { self.work.pop_front() } else { self.work.remove(index) };
        if self.work.is_empty() {
            self.queues.flag(TASKRUN, false);
        }
        id
    }

    pub(super) fn groups(&self) -> impl Iterator<Item = &BufferGroup> {
        self.groups.iter()
    }

    #[inline]
    pub(super) fn group(&mut self, number: u16) -> Option<&mut BufferGroup> {
        self.groups.iter_mut().find(|group| group.number() == number)
    }

    pub(super) fn add_group(&mut self, group: BufferGroup) {
        self.groups.push(group);
    }

    pub(super) fn remove_group(&mut self, number: u16) -> Option<BufferGroup> {
        let at = self.groups.iter().position(|group| group.number() == number)?;
        Some(self.groups.remove(at))
    }

    /// Takes in buffers that were published.
    #[inline]
    pub(super) fn look_at_buffers(&mut self) {
        self.groups.iter_mut().for_each(BufferGroup::look);
    }
}
