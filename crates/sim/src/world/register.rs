//! `io_uring_register`.

use super::ring::Restrictions;
use super::{REGISTERED_RING_SLOTS, World};
use crate::buffers::BufferGroup;
use crate::faults::Fault;
use crate::memory::RegisterArgument;
use annulus_kernel::Register;
use rustix::io::Errno;
use std::os::fd::RawFd;

impl World {
    pub(crate) fn register(
        &mut self,
        fd: RawFd,
        what: Register,
        arg: RegisterArgument,
    ) -> Result<u32, Errno> {
        let ring = self.ring_of(fd)?;
        if self.rings.at(ring).restrictions().is_some_and(|lists| !lists.allow_registration(what)) {
            return Err(Errno::ACCESS);
        }
        match what {
            // No descriptor of a simulated kernel is an eventfd.
            Register::Eventfd => return Err(Errno::BADF),
            Register::Probe => {
                let profile = &self.profile;
                arg.answer_probe(profile.last_opcode(), |code| profile.has(code))?;
            }
            Register::Restrictions => self.restrict(ring, arg)?,
            Register::EnableRings => self.enable(ring)?,
            Register::IowqMaxWorkers | Register::Napi => {}
            Register::RingFds => return self.register_ring(arg),
            Register::UnregisterRingFds => return self.unregister_ring(arg),
            Register::BufferRing => self.add_buffers(ring, arg)?,
            Register::UnregisterBufferRing => self.remove_buffers(ring, arg)?,
            Register::Buffers => self.add_buffer_table(ring, arg)?,
            Register::BuffersUpdate => return self.update_buffer_table(ring, arg),
            Register::Query | Register::ZeroCopyReceive | Register::ZeroCopyControl => {
                return Err(Errno::INVAL);
            }
        }
        Ok(0)
    }

    fn enable(&mut self, ring: u32) -> Result<(), Errno> {
        let ring = self.rings.at_mut(ring);
        if std::mem::replace(&mut ring.enabled, true) { Err(Errno::BADFD) } else { Ok(()) }
    }

    /// Restricts a ring, which is possible only once and before the ring is enabled.
    fn restrict(&mut self, ring: u32, arg: RegisterArgument) -> Result<(), Errno> {
        let ring = self.rings.at_mut(ring);
        if ring.enabled {
            return Err(Errno::BADFD);
        }
        if ring.restricted.is_some() {
            return Err(Errno::BUSY);
        }
        ring.restricted = Some(Restrictions::read(arg)?);
        Ok(())
    }

    fn register_ring(&mut self, arg: RegisterArgument) -> Result<u32, Errno> {
        let mut update = arg.ring_update()?;
        let fd = RawFd::try_from(update.data).map_err(|_| Errno::BADF)?;
        let ring = self.ring_of(fd)?;
        let index = match update.offset {
            u32::MAX => self.registered.iter().position(Option::is_none).ok_or(Errno::BUSY)?,
            asked if (asked as usize) < REGISTERED_RING_SLOTS => asked as usize,
            _ => return Err(Errno::INVAL),
        };
        if self.registered[index].is_some() {
            return Err(Errno::BUSY);
        }
        let (file, _) = self.files.find(fd)?;
        self.files.hold(file);
        self.registered[index] = Some((ring, file));
        update.offset = index as u32;
        arg.answer_ring_update(update);
        Ok(1)
    }

    fn unregister_ring(&mut self, arg: RegisterArgument) -> Result<u32, Errno> {
        let index = arg.ring_update()?.offset as usize;
        let index = self.registered.get_mut(index).ok_or(Errno::INVAL)?;
        if let Some((_, file)) = index.take() {
            self.drop_file(file);
        }
        Ok(1)
    }

    fn add_buffers(&mut self, ring: u32, arg: RegisterArgument) -> Result<(), Errno> {
        let setup = arg.buffer_ring()?;
        if setup.flags != 0 {
            return Err(Errno::INVAL);
        }
        let entries = arg.buffer_entries(&setup)?;
        let ring = self.rings.at_mut(ring);
        if ring.group(setup.group).is_some() {
            return Err(Errno::EXIST);
        }
        ring.add_group(BufferGroup::new(setup.group, entries, setup.ring_entries, self.poison));
        Ok(())
    }

    fn add_buffer_table(&mut self, ring: u32, arg: RegisterArgument) -> Result<(), Errno> {
        let slots = arg.buffer_table()?;
        let table = &mut self.rings.at_mut(ring).buffer_table;
        if !table.is_empty() {
            return Err(Errno::BUSY);
        }
        table.resize(slots, None);
        Ok(())
    }

    /// Changes a slot of the table. As on Linux, a slot is empty after a failed change.
    fn update_buffer_table(&mut self, ring: u32, arg: RegisterArgument) -> Result<u32, Errno> {
        let table_len = self.rings.at(ring).buffer_table.len();
        if table_len == 0 {
            return Err(Errno::NXIO);
        }
        let (slot, buffer) = arg.buffer_update()?;
        if slot >= table_len {
            return Err(Errno::INVAL);
        }
        // The limit on pinned memory.
        let fails = buffer.is_some() && self.occurs(Fault::NoMemory);
        let change = if fails { None } else { buffer };
        self.rings.at_mut(ring).buffer_table[slot] = change;
        if fails { Err(Errno::NOMEM) } else { Ok(1) }
    }

    /// Unregisters a group, after a last check of the buffers that were not used.
    fn remove_buffers(&mut self, ring: u32, arg: RegisterArgument) -> Result<(), Errno> {
        let number = arg.buffer_ring()?.group;
        let group = self.rings.at_mut(ring).remove_group(number).ok_or(Errno::NOENT)?;
        if !std::thread::panicking() {
            group.verify_all();
        }
        Ok(())
    }
}
