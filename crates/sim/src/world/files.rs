//! File calls: as system calls, which block their caller while the device works, or as operations,
//! which do not.

use super::World;
use super::check::is_plain_read_or_write;
use crate::descriptors::{File, FileId};
use crate::fs::{DeviceUse, DiskId, OpenId};
use crate::memory::{DiskCall, FILE_OPCODES, FileRequest, SubmittedEntry};
use crate::op::{Op, OpKind, OpResult, PendingFileCall};
use crate::timeline::Nanos;
use rustix::io::Errno;

impl World {
    /// Performs a file call as a system call: the time that the device needs passes before it
    /// returns.
    pub(crate) fn file(&mut self, request: &FileRequest) -> Result<u32, Errno> {
        let host = self.net.host();
        if host.is_some_and(|host| self.net.is_down(host)) {
            return Err(Errno::IO);
        }
        self.idle_turns = 0;
        let disk = self.disks.of_host(host);
        let call = request.read(self.disks.at(disk), &|fd| self.open_file(disk, fd))?;
        let time = self.draw_time(disk, call.device_use);
        self.pass(time);
        self.perform_call(disk, call).map(|count| count as u32)
    }

    /// Returns the number that an open file has on a disk.
    fn open_file(&self, disk: DiskId, fd: i32) -> Result<OpenId, Errno> {
        match self.files.find(fd)?.1 {
            // The descriptor was passed from another host, or the disk of this host has been
            // replaced.
            File::OnDisk(other, _) if other != disk => Err(Errno::XDEV),
            File::OnDisk(_, file) if self.disks.at(disk).is_cut_off(file) => Err(Errno::IO),
            File::OnDisk(_, file) => Ok(file),
            _ => Err(Errno::INVAL),
        }
    }

    /// Draws the time that a call takes at the device.
    fn draw_time(&mut self, disk: DiskId, device_use: DeviceUse) -> Nanos {
        let disk = self.disks.at(disk);
        if device_use == DeviceUse::None {
            return 0;
        }
        disk.time_of(device_use).saturating_add(disk.device().draw_jitter(&mut self.random))
    }

    /// Performs a call. If it opens a file, opens a descriptor for the file.
    pub(super) fn perform_call(&mut self, disk: DiskId, call: DiskCall) -> Result<usize, Errno> {
        let (opens, device_use) = (call.opens, call.device_use);
        if opens && !self.files.has_free() {
            return Err(Errno::MFILE);
        }
        let answer = match device_use {
            DeviceUse::None => call.perform(self.disks.at_mut(disk))?,
            _ => self.perform_at_device(disk, call)?,
        };
        if !opens {
            return Ok(answer);
        }
        self.files.open(File::OnDisk(disk, answer as OpenId)).map(|fd| fd as usize)
    }

    /// Performs a call that uses the device, which may fail.
    fn perform_at_device(&mut self, disk: DiskId, call: DiskCall) -> Result<usize, Errno> {
        let (disk, random) = (self.disks.at_mut(disk), &mut self.random);
        let device = disk.device();
        match call.device_use {
            DeviceUse::Read if random.chance(device.read_errors) => Err(Errno::IO),
            DeviceUse::Write if random.chance(device.write_errors) => {
                if random.chance(500) {
                    call.perform(disk)?;
                }
                Err(Errno::IO)
            }
            device_use @ (DeviceUse::SyncedWrite(file) | DeviceUse::Sync(file)) => {
                let written = call.perform(disk)?;
                let fails = disk.is_dirty(file) && random.chance(device.write_errors)
                    || random.chance(device.sync_errors);
                if fails {
                    return Err(disk.fail_sync(device_use, random));
                }
                let synced = match device_use {
                    DeviceUse::Sync(_) => disk.sync(file),
                    _ => disk.sync_last_write(file),
                };
                synced.map(|_| written)
            }
            DeviceUse::None | DeviceUse::Read | DeviceUse::Write => call.perform(disk),
        }
    }

    /// Returns true if an entry is a file operation. For an operation that also works on sockets,
    /// the descriptor decides.
    #[inline]
    pub(super) fn is_about_files(&self, entry: &SubmittedEntry) -> bool {
        FILE_OPCODES.contains(&entry.opcode)
            && (!is_plain_read_or_write(entry)
                || matches!(self.files.find(entry.fd), Ok((_, File::OnDisk(..)))))
    }

    /// Performs a call at once, or delays it until the device is done.
    #[inline(never)]
    pub(super) fn submit_file(
        &mut self,
        ring: u32,
        entry: &SubmittedEntry,
        skip: bool,
    ) -> Option<OpResult> {
        if self.is_down(ring) {
            return Some(OpResult::error(Errno::IO));
        }
        let disk = self.disks.of_host(self.rings.at(ring).host);
        let call = match entry.file_call(self.disks.at(disk), &|fd| self.open_file(disk, fd)) {
            Ok(call) => call,
            Err(errno) => return Some(OpResult::error(errno)),
        };
        let after = self.draw_time(disk, call.device_use);
        if after == 0 {
            return Some(self.perform_call(disk, call).into());
        }
        // The file stays open even if its descriptor is closed.
        let held: Vec<FileId> = self.files.find(entry.fd).map(|(id, _)| id).into_iter().collect();
        held.iter().for_each(|&id| self.files.hold(id));
        let work = PendingFileCall { call: Some(call), disk, after, held, checksum: None };
        let (user_data, body) = (entry.user_data, OpKind::File(Box::new(work)));
        self.start_waiting(Op::without_socket(ring, user_data, skip, body), false);
        None
    }
}
