//! Sending a file's pages to a socket on the loop, where that waits for no device.
//!
//! `sendfile` cannot be told not to wait, and what it names cannot be kept for it off the loop: so it is made where the
//! pages are in memory, or, on file systems that do not tell, where reads have lately been quick.
#![allow(unsafe_code)]

use super::aligned::AlignedBuf;
use super::file::File;
use super::latency::{Class, Habitual};
use super::policy::Policy;
use annulus_kernel::file::FileCall;
use rustix::io::Errno;
use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

/// Bytes of a piece that is read and sent where pages cannot be sent.
const PIECE: usize = 64 * 1024;
/// What direct I/O is at most aligned to, on the devices there are.
const ALIGNMENT: usize = 4096;
/// What a stride takes at most, the peer's side of it included, where no device stalls it: more than a busy machine lets a
/// thread wait for its core.
const STALL: Duration = Duration::from_millis(50);

impl File {
    /// Sends pages as they are, `len` bytes at most; `None` where that might wait for the device.
    pub(crate) fn send_pages(&self, offset: u64, len: u32, to: RawFd) -> Option<io::Result<u32>> {
        let call = FileCall::Send { from: self.as_raw_fd(), offset, to, len };
        let core = &self.open.core;
        let send = || {
            // SAFETY: the call names no memory; whoever asks holds the socket open, and this file itself.
            let sent = unsafe { core.kernel.file(&call) };
            core.files.count_inline(*sent.as_ref().unwrap_or(&0) as usize);
            sent
        };
        match self.policy {
            Policy::Offload => None,
            Policy::Inline => Some(send()),
            Policy::Adaptive if self.direct => None,
            Policy::Adaptive => match self.has_in_memory(offset, len) {
                Some(found) => found.then(send),
                None => self.send_quickly(send),
            },
        }
    }

    /// Whether the first and the last byte of a range can be read without waiting: what lies between has mostly come with
    /// them. A range that ends behind the file's end counts as far as it goes. `None` where the file system does not tell.
    fn has_in_memory(&self, offset: u64, len: u32) -> Option<bool> {
        let core = &self.open.core;
        if !core.files.habits.borrow().can_stay_cached(self.device) {
            return None;
        }
        for offset in [offset, offset + u64::from(len) - 1] {
            let (fd, mut byte) = (self.as_raw_fd(), 0u8);
            let call = FileCall::Read { fd, buffer: &mut byte, len: 1, offset, nowait: true };
            // SAFETY: the byte outlives the call.
            match unsafe { core.kernel.file(&call) } {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Some(false),
                Err(error) if error.raw_os_error() == Some(Errno::OPNOTSUPP.raw_os_error()) => {
                    core.files.habits.borrow_mut().cannot_stay_cached(self.device);
                    return None;
                }
                // What else is wrong, the call itself tells.
                _ => {}
            }
        }
        Some(true)
    }

    /// Sends where that has not stalled lately.
    fn send_quickly(&self, send: impl FnOnce() -> io::Result<u32>) -> Option<io::Result<u32>> {
        let (core, habit) = (&self.open.core, self.sending());
        core.files.habits.borrow_mut().begin(&habit)?;
        let (sent, took) = core.files.timed(&*core.kernel, send);
        if took >= STALL {
            core.files.habits.borrow_mut().made_inline(&habit, took);
        }
        Some(sent)
    }

    fn sending(&self) -> Habitual {
        Habitual { device: self.device, class: Class::Send, bytes: 0 }
    }

    /// Reads a piece, to be sent; less only at the file's end. That it comes soon brings the sending of pages back.
    pub(crate) async fn read_piece(&self, offset: u64) -> io::Result<Vec<u8>> {
        let core = &self.open.core;
        let began = core.kernel.now();
        let bytes = match self.direct {
            true => self.read_aligned(offset).await?,
            false => {
                let (read, bytes) = self.read_at(Vec::with_capacity(PIECE), offset).await;
                read.map(|_| bytes)?
            }
        };
        let took = core.kernel.now() - began;
        core.files.habits.borrow_mut().made_elsewhere(&self.sending(), took);
        Ok(bytes)
    }

    /// Past the cache, from any place: what lies before it in its block is read, too.
    async fn read_aligned(&self, offset: u64) -> io::Result<Vec<u8>> {
        let past = offset % ALIGNMENT as u64;
        let (read, bytes) = self.read_at(AlignedBuf::new(PIECE, ALIGNMENT)?, offset - past).await;
        Ok(bytes[..read?].get(past as usize..).unwrap_or_default().to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Runtime;
    use std::io::Read;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    #[test]
    fn where_nobody_tells_pages_are_sent_until_that_has_stalled() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let ran = Runtime::new().unwrap().block_on(async {
            let file = File::open("/proc/self/exe").await.unwrap();
            let core = &file.open.core;
            let send = || file.send_pages(0, 4, theirs.as_raw_fd());
            core.files.habits.borrow_mut().cannot_stay_cached(file.device);
            assert_eq!(send().expect("it is tried").unwrap(), 4);
            for _ in 0..3 {
                let sent = file.send_quickly(|| {
                    std::thread::sleep(STALL);
                    Ok(0)
                });
                assert!(sent.is_some(), "a stall or two may be the scheduler's");
            }
            assert!(send().is_none(), "now it goes another way");
            assert_eq!(file.read_piece(0).await.unwrap().len(), PIECE);
            // As many quick ones; how long real ones take is the machine's.
            for _ in 0..100 {
                let sending = file.sending();
                core.files.habits.borrow_mut().made_elsewhere(&sending, Duration::ZERO);
            }
            assert!(send().is_some(), "quick pieces bring it back");
        });
        ran.unwrap();
        let mut magic = [0; 8];
        ours.read_exact(&mut magic).unwrap();
        assert_eq!(&magic, b"\x7fELF\x7fELF");
    }

    #[test]
    fn what_goes_past_the_cache_is_not_sent_from_it() {
        let (_ours, theirs) = UnixStream::pair().unwrap();
        let sent = Runtime::new().unwrap().block_on(async {
            let mut file = File::open("/proc/self/exe").await.unwrap();
            file.direct = true;
            file.send_pages(0, 4, theirs.as_raw_fd()).is_some()
        });
        assert!(!sent.unwrap());
    }
}
