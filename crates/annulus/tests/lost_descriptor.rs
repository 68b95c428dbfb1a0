//! One of the runtime's own descriptors has been closed by other code. The error contains the call
//! that needed it.
//!
//! The test uses epoll, since io_uring is entered by the number under which the kernel has
//! registered the ring.
//!
//! This file has only one test, since another one in the same process might be given the number
//! that becomes free.

use annulus::time::sleep;
use annulus::{DriverChoice, Runtime};
use std::fs;
use std::mem;
use std::os::fd::RawFd;
use std::time::Duration;

#[test]
fn the_error_contains_the_call() {
    let mut runtime = Runtime::builder().driver(DriverChoice::Epoll).build().unwrap();
    close(descriptor("anon_inode:[eventpoll]"));
    let error = runtime.try_block_on(sleep(Duration::from_millis(1))).unwrap_err();
    assert_eq!(error.to_string(), "epoll_pwait: Bad file descriptor (os error 9)");
    // Forgotten, because dropping the runtime would close the number again.
    mem::forget(runtime);
}

/// Returns the descriptor of this process that links to this target.
fn descriptor(link: &str) -> RawFd {
    let all = fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap().path());
    let same =
        |path: &std::path::PathBuf| fs::read_link(path).is_ok_and(|to| to.as_os_str() == link);
    let path = all.into_iter().find(same).unwrap_or_else(|| panic!("no {link}"));
    path.file_name().unwrap().to_str().unwrap().parse().unwrap()
}

#[allow(unsafe_code)]
fn close(number: RawFd) {
    // SAFETY: the runtime that owns the number is not dropped, and treats the closed number as an
    // error, which is what the test checks.
    unsafe { rustix::io::close(number) };
}
