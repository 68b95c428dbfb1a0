//! Pipes, on Linux. These tests run in a process of their own, without tests that start children:
//! between `fork` and `exec` a child holds every descriptor of its parent, so the end of a pipe
//! that a test drops would still be open.
#![allow(unsafe_code)]

use annulus_kernel::*;
use std::io::IoSlice;
use std::os::fd::AsRawFd;

#[test]
fn a_write_to_a_pipe_without_a_reader_raises_no_signal() {
    let (reading, writing) = pipe::pipe().unwrap();
    // SAFETY: the descriptor is open until the end of the test.
    let fd = unsafe { Fd::from_raw(writing.as_raw_fd()) };
    let write = |signal| pipe::write(fd, &[IoSlice::new(b"bytes")], signal);
    assert_eq!(write(pipe::SigPipe::Raised), Ok(5));
    drop(reading);
    for signal in [pipe::SigPipe::Raised, pipe::SigPipe::of_process()] {
        assert_eq!(write(signal).unwrap_err().raw_os_error(), libc::EPIPE);
    }
    // SAFETY: the set is initialised by the call.
    let is_pending = unsafe {
        let mut pending = std::mem::zeroed();
        libc::sigpending(&raw mut pending);
        libc::sigismember(&raw const pending, libc::SIGPIPE) == 1
    };
    assert!(!is_pending, "the signal was not consumed");
}

#[test]
fn end_keeps_the_descriptor_number_of_a_pipe() {
    let (reading, writing) = pipe::pipe().unwrap();
    // SAFETY: the descriptors are open until the end of the test.
    let [reader, writer] = [&reading, &writing].map(|fd| unsafe { Fd::from_raw(fd.as_raw_fd()) });
    assert_eq!(pipe::read(reader, &mut [0]).unwrap_err().raw_os_error(), libc::EAGAIN);
    pipe::end(writer).unwrap();
    assert_eq!(pipe::read(reader, &mut [0]), Ok(0));
    assert_eq!(pipe::write(writer, &[IoSlice::new(b"to nothing")], pipe::SigPipe::Ignored), Ok(10));
}
