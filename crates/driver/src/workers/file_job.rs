//! A file call that may be made on any thread.
#![allow(unsafe_code)]

use crate::event::Event;
use crate::slots::Token;
use annulus_kernel::file::{FileCall, KeepsFileOpen, PIPE_BUF};
use annulus_kernel::{AioCall, EventFd, Fd, IoVec, Kernel, Linux, descriptor, may_be_refusal};
use annulus_ring::op::file_entry;
use annulus_ring::{Entry, Probe};
use rustix::event::PollFlags;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::cell::OnceCell;
use std::os::fd::RawFd;
use std::{io, slice};

const SEEK_CUR: u32 = 1;
/// `POSIX_FADV_WILLNEED`.
const WILL_NEED: u32 = 3;

/// Maximum length of a read that is announced. Larger ones gain little.
const MAX_ANNOUNCED_BYTES: u32 = 64 * 1024;

/// A file call and the token of its event.
///
/// Until that event has been taken, everything that the call refers to belongs to the job. The
/// caller of [`new`](Self::new) guarantees this, so making the call is safe. A job is not `Clone`,
/// and its event is created only by [`end`](Self::end), which consumes the job. So no call can use
/// the memory after the event.
pub(crate) struct FileJob {
    token: Token,
    call: FileCall,
    /// Whether the file was opened with `O_DIRECT`, once somebody has asked.
    is_direct: OnceCell<bool>,
}

// SAFETY: the pointers of the call point to memory that belongs to the job (`FileJob::new`), and
// are used on one thread at a time, since a job has one owner.
unsafe impl Send for FileJob {}

impl FileJob {
    /// # Safety
    /// Until the event of `token` has been taken, the memory that the call refers to must stay
    /// valid and unmoved, no other code may use it, and the descriptors must stay open.
    pub(crate) unsafe fn new(token: Token, call: FileCall) -> Self {
        Self { token, call, is_direct: OnceCell::new() }
    }

    pub(crate) fn token(&self) -> Token {
        self.token
    }

    /// Returns true for reads and writes at an offset. They wait for a device at most.
    pub(super) fn moves_bytes_at_offset(&self) -> bool {
        let is_transfer = matches!(
            self.call,
            FileCall::Read { .. }
                | FileCall::ReadVector { .. }
                | FileCall::Write { .. }
                | FileCall::WriteVector { .. }
        );
        is_transfer && self.call.properties().cursor.is_none()
    }

    /// Returns true for reads and writes at an offset of a file that was opened with `O_DIRECT`.
    pub(crate) fn is_direct_transfer(&self) -> bool {
        let fd = match self.call {
            FileCall::Read { fd, .. }
            | FileCall::ReadVector { fd, .. }
            | FileCall::Write { fd, .. }
            | FileCall::WriteVector { fd, .. } => fd,
            _ => return false,
        };
        self.moves_bytes_at_offset() && self.is_direct(fd)
    }

    /// Returns true if the call's file was opened with `O_DIRECT`. The system is asked once.
    fn is_direct(&self, fd: RawFd) -> bool {
        *self.is_direct.get_or_init(|| {
            // SAFETY: the descriptor stays open until the job's event has been taken
            // (`FileJob::new`).
            let flags = descriptor::flags(Linux::borrow(unsafe { Fd::from_raw(fd) }));
            flags.is_ok_and(|flags| flags.contains(OFlags::DIRECT))
        })
    }

    /// Returns the call for an [`AioContext`](annulus_kernel::AioContext), if it can make such
    /// calls.
    pub(crate) fn direct_entry(&self, data: u64, eventfd: &EventFd) -> Option<AioCall> {
        AioCall::new(&self.call, data, eventfd)
    }

    /// Returns the file of a small read from the page cache at an offset.
    pub(super) fn buffered_read(&self) -> Option<RawFd> {
        match self.call {
            FileCall::Read { fd, len, .. }
                if (1..=MAX_ANNOUNCED_BYTES).contains(&len) && self.moves_bytes_at_offset() =>
            {
                (!self.is_direct(fd)).then_some(fd)
            }
            _ => None,
        }
    }

    /// Makes the kernel read the data of a [buffered read](Self::buffered_read) into the page
    /// cache, without waiting for the device.
    pub(super) fn announce(&self) {
        if let FileCall::Read { fd, len, offset, .. } = self.call {
            // The read itself reports errors.
            _ = self.perform(FileCall::Advise { fd, offset, len, advice: WILL_NEED }, &Linux);
        }
    }

    /// If the call is made at a cursor, returns the descriptor and the readiness that the call may
    /// wait for. A call that transfers no bytes waits for nothing.
    pub(super) fn awaited_readiness(&self) -> Option<(Fd, PollFlags)> {
        let cursor = self.call.properties().cursor.filter(|_| !self.is_empty())?;
        // SAFETY: the descriptor stays open until the job's event has been taken (`FileJob::new`).
        // The poll thread keeps the number next to the job. It produces that event itself, and does
        // not poll the descriptor afterwards.
        Some((unsafe { Fd::from_raw(cursor.fd) }, cursor.ready))
    }

    /// Returns true if the call is made at the position of a file that can seek. The ring does not
    /// handle such calls correctly (Linux 6.18, `io_kiocb_update_pos`). With `off = -1`, the ring
    /// moves the position only if the call ends within the submission, not for direct I/O or for
    /// calls made by a worker of the ring. It also takes no lock, so two calls may use the same
    /// position.
    pub(crate) fn moves_position(&self, kernel: &dyn Kernel) -> bool {
        let Some(cursor) = self.call.properties().cursor else { return false };
        let mut position = 0;
        let call =
            FileCall::Seek { fd: cursor.fd, offset: 0, origin: SEEK_CUR, position: &mut position };
        // SAFETY: the position outlives the call, and the descriptor stays open until the job's
        // event has been taken (`FileJob::new`).
        unsafe { kernel.file(&call) }.is_ok()
    }

    /// Returns true if the ring would keep the file open after it has completed the call. Worker
    /// threads release the file before they report the result.
    pub(crate) fn outlives_its_completion(&self) -> bool {
        match self.call.properties().keeps_file_open {
            KeepsFileOpen::No => false,
            KeepsFileOpen::Yes => true,
            KeepsFileOpen::UnlessDirect(fd) => !self.is_direct(fd),
        }
    }

    /// Makes the call, which may block.
    pub(super) fn run(&self) -> Result<u32, Errno> {
        self.perform(self.call, &Linux)
    }

    /// Makes the call on the given kernel.
    pub(crate) fn run_on(&self, kernel: &dyn Kernel) -> Result<u32, Errno> {
        self.perform(self.call, kernel)
    }

    /// Returns true if the call is a read or write of no bytes.
    fn is_empty(&self) -> bool {
        match self.call {
            FileCall::Read { len, .. } | FileCall::Write { len, .. } => len == 0,
            _ => self.vectors().is_some_and(|vectors| vectors.iter().all(|part| part.len == 0)),
        }
    }

    /// Returns the pieces of memory of a vectored call.
    fn vectors(&self) -> Option<&[IoVec]> {
        let (FileCall::ReadVector { vectors, count, .. }
        | FileCall::WriteVector { vectors, count, .. }) = self.call
        else {
            return None;
        };
        // SAFETY: the vectors belong to the job until its event has been taken (`FileJob::new`),
        // and are only read.
        Some(unsafe { slice::from_raw_parts(vectors, count as usize) })
    }

    /// Makes the part of the call that does not block while the descriptor is ready. It may still
    /// block if another process takes the bytes or the space first.
    pub(super) fn run_ready(&self) -> Result<u32, Errno> {
        let part = match self.call.properties().cursor.map_or(self.call, |cursor| cursor.part) {
            FileCall::WriteVector { fd, offset, .. } => {
                let first = self.vectors().and_then(|all| all.iter().find(|part| part.len > 0));
                let Some(&IoVec { base: buffer, len }) = first else { return self.run() };
                FileCall::Write { fd, buffer, len: len.min(PIPE_BUF as usize) as u32, offset }
            }
            part => part,
        };
        match self.perform(part, &Linux) {
            // The file, the kernel or a seccomp filter may refuse reads that fail instead of
            // waiting.
            Err(errno) if may_be_refusal(errno) => self.run(),
            result => result,
        }
    }

    /// Makes `call`, which is the job's own call or refers to a part of its memory.
    fn perform(&self, call: FileCall, kernel: &dyn Kernel) -> Result<u32, Errno> {
        // SAFETY: memory and descriptors belong to the job until its event has been taken
        // (`FileJob::new`). The event is created from this result, and the borrow of the only
        // `FileJob` rules out a second call at the same time.
        errno(unsafe { kernel.file(&call) })
    }

    /// Returns the call as an entry, if the ring supports the operation.
    pub(crate) fn entry(&self, probe: &Probe) -> Option<Entry> {
        let entry = file_entry(&self.call).filter(|entry| probe.has(entry.opcode));
        entry.map(|entry| entry.user_data(self.token.bits()))
    }

    /// Returns the event of a job that has ended.
    pub(crate) fn end(self, result: Result<u32, Errno>) -> Event {
        Event { token: self.token, result, more: false, buffer: None }
    }
}

fn errno(answer: io::Result<u32>) -> Result<u32, Errno> {
    answer.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}
