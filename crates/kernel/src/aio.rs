//! Asynchronous file calls without io_uring: `io_submit(2)`.
//!
//! Linux makes a call of this interface without a thread only if the file was opened with
//! `O_DIRECT`; other calls block in `io_submit`. A call that would block fails with `EAGAIN`
//! instead, because it is submitted with `RWF_NOWAIT`.
#![allow(unsafe_code)]

use crate::call::last_error;
use crate::event_fd::EventFd;
use crate::file::{CURSOR_OFFSET, FileCall};
use libc::syscall;
use rustix::io::Errno;
use std::ffi::{c_long, c_ulong};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

/// Operations, `IOCB_CMD_*`.
const PREAD: u16 = 0;
const PWRITE: u16 = 1;
const PREADV: u16 = 7;
const PWRITEV: u16 = 8;

/// `IOCB_FLAG_RESFD`: the end of the call is signalled to an eventfd.
const SIGNALS_EVENTFD: u32 = 1;

/// Maximum number of calls that one system call starts, or whose results it returns.
const MAX_CALLS: usize = 64;

/// A read or a write to submit: `struct iocb`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct AioCall {
    data: u64,
    #[cfg(target_endian = "little")]
    key: u32,
    rw_flags: libc::c_int,
    #[cfg(target_endian = "big")]
    key: u32,
    opcode: u16,
    priority: i16,
    fd: u32,
    buffer: u64,
    len: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    eventfd: u32,
}

const _: () = assert!(size_of::<AioCall>() == 64);

impl AioCall {
    /// Returns the call with a number for its result, or `None` if it is not a read or a write at
    /// an offset. Its end is signalled to the eventfd.
    pub fn new(call: &FileCall, data: u64, eventfd: &EventFd) -> Option<Self> {
        let (opcode, fd, buffer, len, offset) = match *call {
            FileCall::Read { fd, buffer, len, offset, .. } => {
                (PREAD, fd, buffer as u64, len, offset)
            }
            FileCall::Write { fd, buffer, len, offset } => (PWRITE, fd, buffer as u64, len, offset),
            FileCall::ReadVector { fd, vectors, count, offset, .. } => {
                (PREADV, fd, vectors as u64, count, offset)
            }
            FileCall::WriteVector { fd, vectors, count, offset } => {
                (PWRITEV, fd, vectors as u64, count, offset)
            }
            _ => return None,
        };
        (offset != CURSOR_OFFSET).then(|| Self {
            data,
            key: 0,
            rw_flags: libc::RWF_NOWAIT,
            opcode,
            priority: 0,
            fd: fd as u32,
            buffer,
            len: u64::from(len),
            offset: offset as i64,
            reserved: 0,
            flags: SIGNALS_EVENTFD,
            eventfd: eventfd.as_fd().as_raw_fd() as u32,
        })
    }

    /// Returns the number of the call.
    pub fn data(&self) -> u64 {
        self.data
    }
}

/// The result of a call: `struct io_event`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct RawResult {
    data: u64,
    call: u64,
    result: i64,
    second_result: i64,
}

const _: () = assert!(size_of::<RawResult>() == 32);

/// The calls in flight of one event loop, and their results.
#[derive(Debug)]
pub struct AioContext(c_ulong);

impl AioContext {
    /// Creates a context for this number of calls in flight.
    ///
    /// # Errors
    /// `AGAIN` if the system's contexts would exceed `/proc/sys/fs/aio-max-nr`; `NOSYS` or `PERM`
    /// if the kernel or a filter does not offer the interface.
    pub fn new(calls: u32) -> Result<Self, Errno> {
        let mut id: c_ulong = 0;
        // SAFETY: the call writes the number of the context to `id`.
        match unsafe { syscall(libc::SYS_io_setup, calls, &raw mut id) } {
            0 => Ok(Self(id)),
            _ => Err(last_error()),
        }
    }

    /// Starts the first calls, and returns their number. The rest were not started, for example
    /// because one cannot be made this way.
    ///
    /// # Errors
    /// Why the first call was not started: `AGAIN` if too many are in flight, `OPNOTSUPP` or
    /// `INVAL` if the file does not support such calls.
    ///
    /// # Safety
    /// Until the result of a started call has been taken, its memory must stay valid, and no other
    /// code may use memory that it writes. The descriptors must be open, and the caller must have
    /// the right to use them.
    pub unsafe fn submit(&self, calls: &mut [AioCall]) -> Result<usize, Errno> {
        let mut list = [ptr::null_mut(); MAX_CALLS];
        let count = calls.len().min(list.len());
        list.iter_mut().zip(calls).for_each(|(entry, call)| *entry = ptr::from_mut(call));
        // SAFETY: the kernel copies the calls, which are valid. The caller guarantees the same of
        // their memory and descriptors.
        let started =
            unsafe { syscall(libc::SYS_io_submit, self.0, count as c_long, list.as_mut_ptr()) };
        usize::try_from(started).map_err(|_| last_error())
    }

    /// Takes the results of calls that have ended: their numbers, and what they returned.
    pub fn take_results(&self, mut take: impl FnMut(u64, Result<u32, Errno>)) {
        loop {
            let mut results = [const { MaybeUninit::<RawResult>::uninit() }; MAX_CALLS];
            let mut no_wait = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            // SAFETY: the array has space for the results, and the time is valid during the call.
            let count = unsafe {
                syscall(
                    libc::SYS_io_getevents,
                    self.0,
                    0 as c_long,
                    results.len() as c_long,
                    results.as_mut_ptr(),
                    &raw mut no_wait,
                )
            };
            let count = match usize::try_from(count) {
                Ok(count) => count,
                // A signal has arrived. No result was taken.
                Err(_) if last_error() == Errno::INTR => continue,
                Err(_) => return,
            };
            for result in &results[..count] {
                // SAFETY: the kernel has written `count` results.
                let result = unsafe { result.assume_init_ref() };
                let outcome = match u32::try_from(result.result) {
                    Ok(count) => Ok(count),
                    Err(_) => Err(Errno::from_raw_os_error(-result.result as i32)),
                };
                take(result.data, outcome);
            }
            if count < results.len() {
                return;
            }
        }
    }
}

impl Drop for AioContext {
    /// Destroys the context. Waits until all calls in flight have ended.
    fn drop(&mut self) {
        // SAFETY: the context belongs to this value, which is not used again.
        unsafe { syscall(libc::SYS_io_destroy, self.0) };
    }
}
