//! File calls: as system calls, which block their caller while the device works, or as operations,
//! which do not.

use super::World;
use super::check::is_plain_read_or_write;
use crate::descriptors::{File, FileId};
use crate::fs::OpenId;
use crate::memory::{DiskCall, FILE_OPCODES, FileRequest, SubmittedEntry};
use crate::op::{Op, OpKind, OpResult, PendingFileCall};
use rustix::io::Errno;

impl World {
    /// Makes a system call. The caller is blocked while the time passes.
    pub(crate) fn file(&mut self, request: &FileRequest) -> Result<u32, Errno> {
        if self.net.host().is_some_and(|host| self.net.is_down(host)) {
            return Err(Errno::IO);
        }
        let call = request.read(&self.disk, &|fd| self.open_file(fd))?;
        self.pass(call.duration);
        self.perform_call(call).map(|count| count as u32)
    }

    fn open_file(&self, fd: i32) -> Result<OpenId, Errno> {
        match self.files.find(fd)?.1 {
            File::OnDisk(file) => Ok(file),
            _ => Err(Errno::INVAL),
        }
    }

    /// Makes a call, and gives a file that it opens a descriptor.
    pub(super) fn perform_call(&mut self, call: DiskCall) -> Result<usize, Errno> {
        let opens = call.opens;
        if opens && !self.files.has_free() {
            return Err(Errno::MFILE);
        }
        let answer = call.perform(&mut self.disk)?;
        if !opens {
            return Ok(answer);
        }
        self.files.open(File::OnDisk(answer as OpenId)).map(|fd| fd as usize)
    }

    /// Returns true if an entry is a file operation. For an operation that also works on sockets,
    /// the descriptor decides.
    #[inline]
    pub(super) fn is_about_files(&self, entry: &SubmittedEntry) -> bool {
        FILE_OPCODES.contains(&entry.opcode)
            && (!is_plain_read_or_write(entry)
                || matches!(self.files.find(entry.fd), Ok((_, File::OnDisk(_)))))
    }

    /// Makes a call at once, or delays it until the device is done.
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
        let call = match entry.file_call(&self.disk, &|fd| self.open_file(fd)) {
            Ok(call) => call,
            Err(errno) => return Some(OpResult::error(errno)),
        };
        let after = call.duration;
        if after == 0 {
            return Some(self.perform_call(call).into());
        }
        // The file stays open even if its descriptor is closed.
        let held: Vec<FileId> = self.files.find(entry.fd).map(|(id, _)| id).into_iter().collect();
        held.iter().for_each(|&id| self.files.hold(id));
        let work = PendingFileCall { call: Some(call), after, held, checksum: None };
        let (user_data, body) = (entry.user_data, OpKind::File(Box::new(work)));
        self.start_waiting(Op::without_socket(ring, user_data, skip, body), false);
        None
    }
}
