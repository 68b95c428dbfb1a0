//! Sending a file's pages to a socket inline, if that does not wait for a device.
//!
//! `sendfile` has no mode that fails instead of waiting, and the ring has no operation for it. So
//! the adaptive policy calls it only if the pages are in memory, or if the send is small and its
//! pages are predicted to be in memory. On file systems that cannot report whether pages are in
//! memory, it calls `sendfile` unless sends have stalled recently.
#![allow(unsafe_code)]

use super::aligned::AlignedBuf;
use super::call::{CallArgs, CallSite};
use super::file::File;
use crate::file_policy::{CallKind, Class, Policy, Timing};
use crate::slots::streams::carriers::PageSink;
use annulus_kernel::file::FileCall;
use annulus_kernel::may_be_refusal;
use rustix::io::Errno;
use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

/// The largest alignment that direct I/O needs on existing devices.
const MAX_DIRECT_ALIGNMENT: usize = 4096;
/// A send that takes at least this long counts as stalled by the device. Even on a busy machine,
/// the scheduler delays a thread for less time.
const STALLED_SEND: Duration = Duration::from_millis(50);
/// Maximum number of bytes in a send that relies on a prediction. For larger sends, a check of the
/// page cache costs little compared with the send.
const MAX_PREDICTED_SEND_BYTES: u32 = 64 * 1024;

/// A call that sends pages to a socket.
struct SendPages {
    offset: u64,
    to: PageSink,
    len: u32,
}

// SAFETY: the call uses no memory, and an `Fd` is open as long as it is used.
unsafe impl CallArgs for SendPages {
    fn call(&mut self, from: RawFd) -> FileCall {
        let Self { offset, to: PageSink { fd, signal, .. }, len } = *self;
        FileCall::Send { from, offset, to: fd.raw(), len, signal }
    }
}

/// A read of one byte that fails instead of waiting.
struct PageProbe {
    byte: Box<u8>,
    offset: u64,
}

// SAFETY: the call writes only to the box's memory, which does not move with the box.
unsafe impl CallArgs for PageProbe {
    fn call(&mut self, fd: RawFd) -> FileCall {
        let offset = self.offset;
        FileCall::Read { fd, buffer: &mut *self.byte, len: 1, offset, nowait: true }
    }
}

impl File {
    /// Sends at most `len` bytes of pages to a socket. Returns `None` if that might wait for the
    /// device.
    pub(crate) fn send_pages(
        &self,
        offset: u64,
        len: u32,
        to: PageSink,
    ) -> Option<io::Result<u32>> {
        let site = self.site_of(None);
        if site.group.is_some() {
            return None;
        }
        let send = || {
            let sent = site.system_call(&mut SendPages { offset, to, len });
            site.core.inline_policy.count_inline(*sent.as_ref().unwrap_or(&0) as usize);
            sent
        };
        match self.policy {
            Policy::Offload => None,
            Policy::Inline => Some(send()),
            Policy::Adaptive if self.direct => None,
            Policy::Adaptive if self.predicts_send(len) => Some(self.send_predicted(send)),
            Policy::Adaptive => match self.is_cached(&site, offset, len) {
                Some(cached) => cached.then(send),
                None => self.send_if_quick(send),
            },
        }
    }

    /// Returns true if the file is predicted to be in memory and the send is small enough to rely
    /// on that.
    fn predicts_send(&self, len: u32) -> bool {
        let (open, policy) = (&self.open, &self.open.core.inline_policy);
        let lasting = || open.is_ordinary() && policy.supports_nowait(self.device);
        len <= MAX_PREDICTED_SEND_BYTES && open.page_cache.predicts(lasting)
    }

    /// Sends without a check. If that may have stalled, the next send is checked.
    fn send_predicted(&self, send: impl FnOnce() -> io::Result<u32>) -> io::Result<u32> {
        let (core, kind) = (&self.open.core, self.send_kind());
        let (sent, stalled) =
            core.inline_policy.measured(&*core.kernel, Timing::Sampled, &kind, send);
        if stalled {
            self.open.page_cache.check_next();
        }
        sent
    }

    /// Returns true if the first and the last byte of a range can be read without waiting. The
    /// bytes between them have usually been read into memory at the same time. Beyond the end of
    /// the file, nothing needs to be in memory. Returns `None` if this cannot be determined.
    fn is_cached(&self, site: &CallSite<'_>, offset: u64, len: u32) -> Option<bool> {
        let policy = &site.core.inline_policy;
        if !policy.supports_nowait(self.device) {
            return None;
        }
        let mut probe = PageProbe { byte: Box::default(), offset };
        for offset in [offset, offset + u64::from(len) - 1] {
            probe.offset = offset;
            match site.system_call(&mut probe) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.open.page_cache.miss();
                    return Some(false);
                }
                Err(error) if error.raw_os_error() == Some(Errno::OPNOTSUPP.raw_os_error()) => {
                    policy.note_no_nowait(self.device);
                    return None;
                }
                // The kernel or a filter refuses reads in this mode, or the file refuses all reads.
                Err(error) if Errno::from_io_error(&error).is_some_and(may_be_refusal) => {
                    return None;
                }
                // The send will return any other error itself.
                _ => {}
            }
        }
        self.open.page_cache.hit();
        Some(true)
    }

    /// Returns the number of bytes from an offset to the end that the file had when its length was
    /// first needed. Returns `None` if the length is not known.
    pub(crate) fn expected_len(&self, offset: u64) -> Option<u64> {
        self.open.len().map(|len| len.saturating_sub(offset))
    }

    /// Returns true if this is a regular file that ended at this offset when its length was first
    /// needed.
    pub(crate) fn is_known_end(&self, offset: u64) -> bool {
        self.open.len() == Some(offset)
    }

    /// Returns the current length of a regular file, as far as is known without asking a file
    /// server. Returns `None` for other files, or if the file system may hang.
    pub(crate) fn len_now(&self) -> Option<u64> {
        self.open.len_now()
    }

    /// Returns true if the file uses the page cache. Small parts should then be read instead of
    /// sent as pages.
    pub(crate) fn is_read_when_small(&self) -> bool {
        !self.direct
    }

    /// Sends unless sends on this device have stalled recently.
    fn send_if_quick(&self, send: impl FnOnce() -> io::Result<u32>) -> Option<io::Result<u32>> {
        let (core, kind) = (&self.open.core, self.send_kind());
        core.inline_policy.before_inline(&kind)?;
        let (sent, took) = core.inline_policy.timed(&*core.kernel, send);
        if took >= STALLED_SEND {
            core.inline_policy.after_inline(&kind, took);
        }
        Some(sent)
    }

    fn send_kind(&self) -> CallKind {
        CallKind { device: self.device, class: Class::Send, bytes: 0 }
    }

    /// Reads a piece of about `len` bytes to be sent. It is empty only at the end of the file. If
    /// these reads are quick, the latency policy allows sending pages again.
    pub(crate) async fn read_piece(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let core = &self.open.core;
        let began = core.kernel.now();
        let bytes = match self.direct {
            true => self.read_aligned(offset, len).await?,
            false => {
                let (read, bytes) = self.read_at(Vec::with_capacity(len), offset).await;
                read.map(|_| bytes)?
            }
        };
        let took = core.kernel.now() - began;
        core.inline_policy.after_offload(&self.send_kind(), took);
        Ok(bytes)
    }

    /// Reads at any offset by direct I/O, which needs an aligned offset and length: reads whole
    /// blocks, and discards the bytes before `offset`.
    async fn read_aligned(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let past = offset % MAX_DIRECT_ALIGNMENT as u64;
        let len = len.next_multiple_of(MAX_DIRECT_ALIGNMENT);
        let (read, bytes) =
            self.read_at(AlignedBuf::new(len, MAX_DIRECT_ALIGNMENT)?, offset - past).await;
        Ok(bytes[..read?].get(past as usize..).unwrap_or_default().to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Runtime;
    use annulus_kernel::Fd;
    use annulus_kernel::file::pages;
    use std::io::Read;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    fn sink_of(socket: &UnixStream) -> PageSink {
        // SAFETY: the socket is open for the whole test, which only sends to it.
        let fd = unsafe { Fd::from_raw(socket.as_raw_fd()) };
        PageSink { fd, signal: pages::prepare(fd).unwrap() }
    }

    #[test]
    fn send_pages_stops_after_stalls_on_a_file_system_without_nowait() {
        let (mut ours, remote) = UnixStream::pair().unwrap();
        Runtime::new().unwrap().block_on(async {
            let file = File::open("/proc/self/exe").await.unwrap();
            let core = &file.open.core;
            let send = || file.send_pages(0, 4, sink_of(&remote));
            core.inline_policy.note_no_nowait(file.device);
            assert_eq!(send().expect("the first send was not tried").unwrap(), 4);
            for _ in 0..3 {
                let sent = file.send_if_quick(|| {
                    std::thread::sleep(STALLED_SEND);
                    Ok(0)
                });
                assert!(sent.is_some(), "a send was not tried before the third stall");
            }
            assert!(send().is_none(), "a send was tried after the third stall");
            assert_eq!(file.read_piece(0, 5000).await.unwrap().len(), 5000);
            // Durations are reported instead of measured, since real reads take different times on
            // each machine.
            for _ in 0..100 {
                core.inline_policy.after_offload(&file.send_kind(), Duration::ZERO);
            }
            assert!(send().is_some(), "a send was not tried after quick reads");
        });
        let mut magic = [0; 8];
        ours.read_exact(&mut magic).unwrap();
        assert_eq!(&magic, b"\x7fELF\x7fELF");
    }

    #[test]
    fn direct_files_are_not_sent_from_the_page_cache() {
        let (_ours, remote) = UnixStream::pair().unwrap();
        let sent = Runtime::new().unwrap().block_on(async {
            let mut file = File::open("/proc/self/exe").await.unwrap();
            file.direct = true;
            file.send_pages(0, 4, sink_of(&remote)).is_some()
        });
        assert!(!sent);
    }
}
