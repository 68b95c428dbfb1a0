//! Invariant 10 in a forked child. This test has its own binary, because the child shares
//! the descriptors of all tests, and would wait forever for a lock that another test held.
#![allow(unsafe_code)]

mod common;

use annulus::process::{Command, Stdio};
use annulus::spawn;
use annulus::task::{JoinError, JoinSet, spawn_blocking, yield_now};
use common::{pair, run, touch};
use std::future::pending;

#[test]
fn a_forked_child_gets_errors_and_can_build_its_own_runtime() {
    run(async {
        let (mut client, mut server) = pair().await?;
        server.send("for the parent").await?;
        let lease = client.recv().await?.unwrap();
        let handle = annulus::handle()?;
        let mut command = Command::new("cat");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn()?;
        let (done, waits, mut set) = (spawn(async { 7 }), spawn(pending::<()>()), JoinSet::new());
        set.spawn(pending::<()>());
        yield_now().await;
        // SAFETY: the process's other thread only waits for this one and holds no lock, so the
        // child may call anything. It exits at once.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let refused = touch(client.recv()).is_some_and(|answer| answer.is_err());
            drop(client);
            drop(server);
            drop(lease);
            let spawned = handle.spawn(async {}).map(drop);
            let blocked = handle.block_on(|| async {});
            let refused = refused && [spawned, blocked].into_iter().all(is_forked);
            drop(process);
            // The parent's tasks do not run here, so nothing would wake code that waits for them.
            let spawned = [waits, spawn(async {}), spawn_blocking(|| ())];
            let cancelled = spawned.into_iter().all(|task| touch(task).is_some_and(is_cancelled))
                && touch(set.join_next()).flatten().is_some_and(is_cancelled)
                && touch(done).is_some_and(|done| done.is_ok_and(|done| done == 7));
            let refused = refused && cancelled;
            let own = annulus::run(async { pair().await.map(drop) }).is_ok();
            // SAFETY: `_exit` takes no pointers. It ends the child without running the parent's
            // destructors.
            unsafe { libc::_exit(if refused && own { 0 } else { 1 }) };
        }
        let mut status = 0;
        // SAFETY: `status` is valid for writes.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "a check in the child failed");
        // The parent's connection is not affected.
        assert_eq!(&*lease, b"for the parent");
        client.send("ping").await?;
        assert_eq!(&*server.recv().await?.unwrap(), b"ping");
        // Nor is its process.
        process.stdin.take().expect("not piped").send("still here").await?;
        assert_eq!(process.wait_with_output().await?.stdout, b"still here");
        Ok(())
    });
}

fn is_cancelled(joined: Result<(), JoinError>) -> bool {
    matches!(joined, Err(error) if error.is_cancelled())
}

fn is_forked(answer: std::io::Result<()>) -> bool {
    answer.err().is_some_and(|error| error.to_string().contains("belongs to the parent process"))
}
