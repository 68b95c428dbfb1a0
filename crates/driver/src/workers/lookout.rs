//! A thread that looks out for the other ends of pipes, terminals and their like. A call that waits for somebody there may
//! wait for good, and would keep a worker from everybody else's files.
//!
//! A call *waits* for its descriptor → is *under way* once that is ready → done; or waits again, where somebody else was
//! quicker. It can be taken back at any time before it is done.
#![allow(unsafe_code)]

use super::{Job, Shared, State};
use crate::token::Token;
use annulus_kernel::file::FileCall;
use annulus_kernel::{Fd, Linux};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::AsFd;
use rustix::fs::{FileType, fstat};
use rustix::io::Errno;

/// The offset that stands for a file's cursor.
const CURSOR: u64 = u64::MAX;
/// Bytes that a pipe with any room takes without waiting: `PIPE_BUF`.
const PIPE_BUF: u32 = 4096;

/// A call that waits for its descriptor.
pub(super) struct Errand {
    job: Job,
    fd: Fd,
    flags: PollFlags,
    pub(super) under_way: bool,
    cancelled: bool,
}

impl Errand {
    /// `None` for a call that waits for nothing, or for a device.
    ///
    /// # Safety
    /// The call's descriptors must stay open until its event was taken.
    pub(super) unsafe fn new(job: Job) -> Option<Self> {
        let (fd, flags) = match job.call {
            FileCall::Read { fd, offset: CURSOR, .. } => (fd, PollFlags::IN),
            FileCall::Write { fd, offset: CURSOR, .. } => (fd, PollFlags::OUT),
            _ => return None,
        };
        // SAFETY: the caller's promise, passed on.
        let fd = unsafe { Fd::from_raw(fd) };
        is_shared(fd).then_some(Self { job, fd, flags, under_way: false, cancelled: false })
    }
}

/// Whether there is somebody at the other end. Of what cannot be asked, the call tells what is wrong.
fn is_shared(fd: Fd) -> bool {
    use FileType::{CharacterDevice, Fifo, Socket, Unknown};
    let kind = fstat(Linux::borrow(fd)).map(|stat| FileType::from_raw_mode(stat.st_mode));
    matches!(kind, Ok(CharacterDevice | Fifo | Socket | Unknown))
}

impl State {
    fn errand(&mut self, token: Token) -> Option<&mut Errand> {
        self.errands.iter_mut().find(|errand| errand.job.token == token)
    }

    fn end_errand(&mut self, token: Token, result: Result<u32, Errno>) {
        self.errands.retain(|errand| errand.job.token != token);
        self.done.push((token, result));
    }

    /// Takes a call back; false where there is none.
    pub(super) fn cancel_errand(&mut self, token: Token) -> bool {
        let Some(errand) = self.errand(token) else { return false };
        errand.cancelled = true;
        if !errand.under_way {
            self.end_errand(token, Err(Errno::CANCELED));
        }
        true
    }
}

impl Shared {
    /// The thread's life.
    pub(super) fn look_out(&self) {
        while let Some((tokens, mut looked_at)) = self.sights() {
            // Where it fails, nothing was seen.
            let seen = poll(&mut looked_at, None).is_ok();
            // It fails only where there is no news.
            _ = rustix::io::read(&self.news, &mut [0; 8]);
            let ready = |fd: &PollFd<'_>| seen && !fd.revents().is_empty();
            for (token, _) in tokens.iter().zip(&looked_at[1..]).filter(|(_, fd)| ready(fd)) {
                self.run_errand(*token);
            }
        }
    }

    /// Whom to look at, and behind the news for whose sake; none once all is over.
    fn sights(&self) -> Option<(Vec<Token>, Vec<PollFd<'_>>)> {
        let state = self.state();
        let mut looked_at = vec![PollFd::from_borrowed_fd(self.news.as_fd(), PollFlags::IN)];
        let look =
            |errand: &Errand| PollFd::from_borrowed_fd(Linux::borrow(errand.fd), errand.flags);
        looked_at.extend(state.errands.iter().map(look));
        let tokens = state.errands.iter().map(|errand| errand.job.token).collect();
        (!state.closed).then_some((tokens, looked_at))
    }

    /// Makes a call whose descriptor is ready, unless it was taken back.
    fn run_errand(&self, token: Token) {
        let Some(call) = self.begin_errand(token) else { return };
        // SAFETY: the submitter keeps what the call names until the event was taken.
        let result = unsafe { attempt(call) };
        let mut state = self.state();
        let cancelled = state.errand(token).is_some_and(|errand| {
            errand.under_way = false;
            errand.cancelled
        });
        match result {
            Err(Errno::AGAIN) if !cancelled => return,
            Err(Errno::AGAIN) => state.end_errand(token, Err(Errno::CANCELED)),
            result => state.end_errand(token, result),
        }
        drop(state);
        self.ring();
    }

    fn begin_errand(&self, token: Token) -> Option<FileCall> {
        let mut state = self.state();
        if state.closed {
            return None;
        }
        let errand = state.errand(token)?;
        errand.under_way = true;
        Some(errand.job.call)
    }
}

/// Makes a call on a descriptor that is ready, of so much as does not wait. Where somebody else is quicker, it waits only on
/// what cannot be told not to: a named pipe, a terminal.
///
/// # Safety
/// As [`FileCall::call`].
unsafe fn attempt(call: FileCall) -> Result<u32, Errno> {
    let now = match call {
        FileCall::Read { fd, buffer, len, offset, .. } => {
            FileCall::Read { fd, buffer, len, offset, nowait: true }
        }
        FileCall::Write { fd, buffer, len, offset } => {
            FileCall::Write { fd, buffer, len: len.min(PIPE_BUF), offset }
        }
        call => call,
    };
    // SAFETY: the caller's promise, passed on.
    match unsafe { super::make(&now) } {
        // SAFETY: as above.
        Err(Errno::OPNOTSUPP) => unsafe { super::make(&call) },
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{token, wait_for};
    use super::super::{MOST, Workers};
    use super::*;
    use std::os::fd::{AsRawFd, RawFd};

    fn read(fd: RawFd, byte: &mut u8) -> FileCall {
        FileCall::Read { fd, buffer: byte, len: 1, offset: CURSOR, nowait: false }
    }

    #[test]
    fn calls_that_wait_for_somebody_keep_no_worker_and_can_be_taken_back() {
        let workers = Workers::new().unwrap();
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let mut bytes = [0u8; 2 * MOST];
        for (slot, byte) in bytes.iter_mut().enumerate() {
            // SAFETY: the bytes outlive the waits below.
            unsafe { workers.submit(token(slot as u32), read(reader.as_raw_fd(), byte)) }.unwrap();
        }
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let other = token(99);
        let call = FileCall::Sync { fd: file.as_raw_fd(), data_only: true };
        // SAFETY: the call names no memory.
        unsafe { workers.submit(other, call) }.unwrap();
        assert_eq!(wait_for(&workers, 1)[0].token, other);
        assert!(workers.cancel(token(3)) && !workers.cancel(token(3)), "only once");
        let event = wait_for(&workers, 1)[0];
        assert_eq!((event.token, event.result), (token(3), Err(Errno::CANCELED)));
        rustix::io::write(&writer, &[1; 2 * MOST]).unwrap();
        let events = wait_for(&workers, 2 * MOST - 1);
        assert!(events.iter().all(|event| event.result == Ok(1) && event.token != token(3)));
        assert_eq!((bytes[3], bytes.iter().sum::<u8>()), (0, 2 * MOST as u8 - 1));
    }

    #[test]
    fn a_write_takes_no_more_than_there_is_room_for() {
        let workers = Workers::new().unwrap();
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let bytes = vec![7u8; 1 << 20];
        let (fd, len) = (writer.as_raw_fd(), bytes.len() as u32);
        let call = FileCall::Write { fd, buffer: bytes.as_ptr(), len, offset: CURSOR };
        // SAFETY: the bytes outlive the wait.
        unsafe { workers.submit(token(1), call) }.unwrap();
        assert_eq!(wait_for(&workers, 1)[0].result, Ok(PIPE_BUF));
        drop(reader);
        // SAFETY: as above.
        unsafe { workers.submit(token(2), call) }.unwrap();
        assert_eq!(wait_for(&workers, 1)[0].result, Err(Errno::PIPE));
    }
}
