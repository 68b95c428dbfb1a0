//! A forked child cannot use its parent's guest.
#![allow(unsafe_code)]

mod common;

use annulus::net::UnixStream;
use common::{on_both, poll_once};

#[test]
fn a_forked_child_gets_errors_and_the_parent_continues() {
    on_both(async || {
        let (mut one, mut other) = UnixStream::pair()?;
        // SAFETY: the child polls two futures, which fail without a system call, and exits at once.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let sends = poll_once(one.send("from the child")).is_some_and(|sent| sent.is_err());
            let receives = poll_once(other.recv()).is_some_and(|received| received.is_err());
            // SAFETY: `_exit` takes no pointers. It ends the child without running the parent's
            // destructors.
            unsafe { libc::_exit(if sends && receives { 0 } else { 1 }) };
        }
        let mut status = 0;
        // SAFETY: `status` is valid for writes.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "a check in the child failed");
        one.send("from the parent").await?;
        assert_eq!(&*other.recv().await?.unwrap(), b"from the parent");
        Ok(())
    });
}
