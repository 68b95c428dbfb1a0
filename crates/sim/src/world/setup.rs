//! Setting up, mapping and freeing rings.

use super::World;
use super::ring::Ring;
use crate::descriptors::File;
use crate::memory::{COMPLETION_OFFSETS, Queues, RingSizes, SUBMISSION_OFFSETS};
use annulus_kernel::RingParams;
use annulus_ring::SetupFlags;
use rustix::io::Errno;
use std::os::fd::RawFd;

/// Maximum entries of a submission queue. A completion queue may have twice as many.
const MAX_RING_ENTRIES: u32 = 32_768;

/// Number of CPUs of the simulated host, for the kernel thread.
const CPU_COUNT: u32 = 64;

impl World {
    pub(crate) fn setup(&mut self, entries: u32, params: &mut RingParams) -> Result<RawFd, Errno> {
        if let Some(errno) = self.profile.refusal {
            return Err(errno);
        }
        let flags = SetupFlags::from_bits_retain(params.flags);
        self.check_flags(flags)?;
        if flags.contains(SetupFlags::SQ_AFF) && params.sq_thread_cpu >= CPU_COUNT {
            return Err(Errno::INVAL);
        }
        let ring_sizes = ring_sizes(entries, params.cq_entries, flags)?;
        let ring = self.rings.insert(Ring::new(Queues::new(ring_sizes)?, flags, self.net.host()));
        let fd =
            self.files.open(File::Ring(ring)).inspect_err(|_| drop(self.rings.remove(ring)))?;
        params.sq_entries = ring_sizes.submissions;
        params.cq_entries = ring_sizes.completions;
        params.features = self.profile.features.bits();
        params.sq_off = SUBMISSION_OFFSETS;
        params.sq_off.array = ring_sizes.array_offset();
        params.cq_off = COMPLETION_OFFSETS;
        Ok(fd)
    }

    /// Returns EINVAL if the kernel does not support a flag or does not allow this combination of
    /// flags.
    fn check_flags(&self, flags: SetupFlags) -> Result<(), Errno> {
        let has = |flag| flags.contains(flag);
        let quiet = SetupFlags::COOP_TASKRUN | SetupFlags::DEFER_TASKRUN;
        let wrong = !self.profile.setup.contains(flags)
            || has(SetupFlags::DEFER_TASKRUN) && !has(SetupFlags::SINGLE_ISSUER)
            || has(SetupFlags::TASKRUN_FLAG) && !flags.intersects(quiet)
            || has(SetupFlags::SQPOLL) && flags.intersects(quiet)
            || has(SetupFlags::SQ_AFF) && !has(SetupFlags::SQPOLL)
            || has(quiet);
        if wrong { Err(Errno::INVAL) } else { Ok(()) }
    }

    /// Returns the number of a descriptor's ring.
    pub(super) fn ring_of(&self, fd: RawFd) -> Result<u32, Errno> {
        match self.files.find(fd)?.1 {
            File::Ring(ring) => Ok(ring),
            _ => Err(Errno::OPNOTSUPP),
        }
    }

    pub(crate) fn map(&mut self, fd: RawFd, offset: u64, len: usize) -> Result<*mut u8, Errno> {
        let ring = self.ring_of(fd)?;
        let ring = self.rings.at_mut(ring);
        let address = ring.queues.address(offset, len).ok_or(Errno::INVAL)?;
        ring.mappings += 1;
        Ok(address)
    }

    /// Removes one mapping of the ring that this address belongs to.
    pub(crate) fn unmap(&mut self, address: *mut u8) {
        let found = self.rings.iter().find(|(_, ring)| ring.queues.owns(address));
        let Some((index, _)) = found else { return };
        self.rings.at_mut(index).mappings -= 1;
        self.free_ring(index);
    }

    /// Closes the file of a ring. Its operations in flight end without completions.
    pub(super) fn end_ring(&mut self, ring: u32) {
        for id in self.ops.ids_of_ring(ring) {
            let op = self.ops.take(id);
            self.ops.end(id, &op);
            self.forget(id, &op);
        }
        self.rings.at_mut(ring).ended = true;
        self.free_ring(ring);
    }

    fn free_ring(&mut self, ring: u32) {
        let state = self.rings.at(ring);
        if state.ended && state.mappings == 0 {
            self.rings.remove(ring);
        }
    }
}

fn ring_sizes(entries: u32, completions: u32, flags: SetupFlags) -> Result<RingSizes, Errno> {
    let clamp = |count: u32, most: u32| match count {
        0 => Err(Errno::INVAL),
        count if count <= most => Ok(count.next_power_of_two()),
        _ if flags.contains(SetupFlags::CLAMP) => Ok(most),
        _ => Err(Errno::INVAL),
    };
    let submissions = clamp(entries, MAX_RING_ENTRIES)?;
    let asked = if flags.contains(SetupFlags::CQSIZE) { completions } else { 2 * submissions };
    let completions = clamp(asked, 2 * MAX_RING_ENTRIES)?;
    let array = !flags.contains(SetupFlags::NO_SQARRAY);
    if completions < submissions {
        Err(Errno::INVAL)
    } else {
        Ok(RingSizes { submissions, completions, array })
    }
}
