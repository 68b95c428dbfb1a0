//! A guest in a forked child.
#![allow(unsafe_code)]

mod common;

use annulus::net::UnixStream;
use common::on_both;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// Polls a future once.
fn poll_once<F: Future>(future: F) -> Poll<F::Output> {
    pin!(future).as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn a_forked_child_gets_errors_and_the_parent_goes_on() {
    on_both(async || {
        let (mut one, mut other) = UnixStream::pair()?;
        // SAFETY: the child polls two futures, which fail without a system call, and exits at once.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let refused = |answer: Poll<bool>| answer == Poll::Ready(true);
            let sends = refused(poll_once(one.send("from the child")).map(|sent| sent.is_err()));
            let receives = refused(poll_once(other.recv()).map(|received| received.is_err()));
            // SAFETY: ends the child without running the parent's destructors.
            unsafe { libc::_exit(if sends && receives { 0 } else { 1 }) };
        }
        let mut status = 0;
        // SAFETY: waits for the child made above.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "the child's checks");
        one.send("from the parent").await?;
        assert_eq!(&*other.recv().await?.unwrap(), b"from the parent");
        Ok(())
    });
}
