//! A ring and its restrictions, as the kernel sees them.

use crate::buffers::BufferGroup;
use crate::memory::{PinnedBuffer, Queues, RegisterArgument};
use crate::op_id::OpId;
use annulus_kernel::Register;
use annulus_ring::{Completion, Entry, SetupFlags};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::net::IpAddr;

/// `IORING_SQ_NEED_WAKEUP`
const NEED_WAKEUP: u32 = 1 << 0;
/// `IORING_SQ_CQ_OVERFLOW`
const CQ_OVERFLOW: u32 = 1 << 1;
/// `IORING_SQ_TASKRUN`
const TASKRUN: u32 = 1 << 2;

pub(super) struct Ring {
    pub(super) queues: Queues,
    pub(super) setup: SetupFlags,
    pub(super) host: Option<IpAddr>,
    pub(super) enabled: bool,
    /// Restrictions that apply once the ring is enabled.
    pub(super) restricted: Option<Restrictions>,
    /// Whether the file of the ring is closed. The memory stays while it is mapped.
    pub(super) ended: bool,
    pub(super) mappings: u32,
    groups: Vec<BufferGroup>,
    /// The slots of registered buffers; empty before the table is registered.
    pub(super) buffer_table: Vec<Option<PinnedBuffer>>,
    /// Operations to try.
    work: VecDeque<OpId>,
    /// Completions that found no space in the queue.
    overflow: VecDeque<Completion>,
}

impl Ring {
    pub(super) fn new(queues: Queues, setup: SetupFlags, host: Option<IpAddr>) -> Self {
        // The kernel thread sleeps between calls of `enter`, so each submission must wake it.
        queues.flag(NEED_WAKEUP, setup.contains(SetupFlags::SQPOLL));
        Self {
            queues,
            setup,
            host,
            enabled: !setup.contains(SetupFlags::R_DISABLED),
            restricted: None,
            ended: false,
            mappings: 0,
            groups: Vec::new(),
            buffer_table: Vec::new(),
            work: VecDeque::new(),
            overflow: VecDeque::new(),
        }
    }

    /// Returns the restrictions that apply now.
    #[inline]
    pub(super) fn restrictions(&self) -> Option<&Restrictions> {
        self.restricted.as_ref().filter(|_| self.enabled)
    }

    /// Returns true if work runs only in an `enter` that asks for it.
    #[inline]
    pub(super) fn defers(&self) -> bool {
        self.setup.contains(SetupFlags::DEFER_TASKRUN)
    }

    /// Returns true if a kernel thread takes the entries.
    #[inline]
    pub(super) fn polls(&self) -> bool {
        self.setup.contains(SetupFlags::SQPOLL)
    }

    /// Posts a completion. Returns true if it went to the overflow list, which it does if the queue
    /// is full or the list is not empty.
    #[inline]
    pub(super) fn post(&mut self, completion: Completion) -> bool {
        if self.post_more(completion) {
            return false;
        }
        self.overflow.push_back(completion);
        self.queues.flag(CQ_OVERFLOW, true);
        true
    }

    /// Posts a completion if there is space and the overflow list is empty.
    #[inline]
    pub(super) fn post_more(&mut self, completion: Completion) -> bool {
        self.overflow.is_empty() && self.queues.post(completion)
    }

    /// Moves completions from the overflow list to the queue.
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
            self.queues.flag(CQ_OVERFLOW, false);
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

    /// Takes the operation at `index` of the work queue.
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

    pub(super) fn registered_buffer(&self, slot: u16) -> Option<PinnedBuffer> {
        self.buffer_table.get(usize::from(slot)).copied().flatten()
    }

    /// Takes published buffers of all groups.
    #[inline]
    pub(super) fn take_published_buffers(&mut self) {
        self.groups.iter_mut().for_each(BufferGroup::take_published);
    }
}

/// The kinds of restrictions: `IORING_RESTRICTION_*`.
const REGISTER_OP: u16 = 0;
const SQE_OP: u16 = 1;
const SQE_FLAGS_ALLOWED: u16 = 2;
const SQE_FLAGS_REQUIRED: u16 = 3;

/// The registrations, operations and entry flags that a restricted ring allows or requires.
#[derive(Debug, Default)]
pub(super) struct Restrictions {
    registrations: Vec<u8>,
    operations: Vec<u8>,
    flags_allowed: u8,
    flags_required: u8,
}

impl Restrictions {
    pub(super) fn read(arg: RegisterArgument) -> Result<Self, Errno> {
        let mut lists = Self::default();
        for rule in (0..arg.count()).map(|index| arg.restriction(index)) {
            match rule.kind {
                REGISTER_OP => lists.registrations.push(rule.value),
                SQE_OP => lists.operations.push(rule.value),
                SQE_FLAGS_ALLOWED => lists.flags_allowed = rule.value,
                SQE_FLAGS_REQUIRED => lists.flags_required = rule.value,
                _ => return Err(Errno::INVAL),
            }
        }
        Ok(lists)
    }

    pub(super) fn allow_entry(&self, entry: &Entry) -> bool {
        self.operations.contains(&entry.opcode)
            && entry.flags & self.flags_required == self.flags_required
            && entry.flags & !(self.flags_allowed | self.flags_required) == 0
    }

    pub(super) fn allow_registration(&self, what: Register) -> bool {
        self.registrations.contains(&(what as u8))
    }
}
