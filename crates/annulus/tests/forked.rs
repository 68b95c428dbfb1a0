//! Invariant 10 in a forked child. Alone in its process: the child shares the descriptors of all
//! tests, and would wait forever for a lock that another test held.
#![allow(unsafe_code)]

mod common;

use common::{pair, run, touch};

#[test]
fn a_forked_child_gets_errors_and_can_build_its_own_runtime() {
    run(async {
        let (mut client, mut server) = pair().await?;
        server.send("for the parent").await?;
        let lease = client.recv().await?.unwrap();
        // SAFETY: the child calls only what the child of a process with one relevant thread may
        // call, and exits at once.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let refused = touch(client.recv()).is_some_and(|answer| answer.is_err());
            drop(client);
            drop(server);
            drop(lease);
            let own = annulus::run(async { pair().await.map(drop) }).is_ok();
            // SAFETY: ends the child without running the parent's destructors.
            unsafe { libc::_exit(if refused && own { 0 } else { 1 }) };
        }
        let mut status = 0;
        // SAFETY: waits for the child forked above.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "a check in the child failed");
        // The parent's connection is not affected.
        assert_eq!(&*lease, b"for the parent");
        client.send("ping").await?;
        assert_eq!(&*server.recv().await?.unwrap(), b"ping");
        Ok(())
    });
}
