//! Invariant 7: a listener that runs out of descriptors pauses, returns no error, and recovers by
//! itself. This test has its own binary, because it lowers the process's limit on open files.
#![allow(unsafe_code)]

mod common;

use annulus::net::TcpListener;
use annulus::time::sleep;
use annulus::{counters, spawn};
use std::process::{Child, Command};
use std::time::Duration;

fn limit_open_files(to: u64) {
    let limit = libc::rlimit { rlim_cur: to, rlim_max: to };
    // SAFETY: the call only reads `limit`, which outlives it.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
}

/// Starts clients in another process, since descriptors are scarce here.
fn python_clients(address: std::net::SocketAddr, count: usize) -> std::io::Result<Child> {
    let script = format!(
        "import socket\n\
         s=[socket.create_connection(('127.0.0.1',{})) for _ in range({count})]\n\
         for c in s:\n c.sendall(b'hi')\n\
         assert all(c.recv(2)==b'hi' for c in s)\n",
        address.port()
    );
    Command::new("python3").arg("-c").arg(script).spawn()
}

#[test]
fn a_listener_without_descriptors_pauses_and_recovers() {
    if !common::has_python() {
        return;
    }
    common::run(async {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let mut clients = python_clients(address, 40)?;
        limit_open_files(common::open_descriptors() as u64 + 10);
        // Each connection is served once and closed, which frees a descriptor for the next one.
        for _ in 0..40 {
            let (mut stream, _) = listener.accept().await?;
            spawn(async move {
                while let Ok(Some(lease)) = stream.recv().await {
                    stream.send(lease).await.unwrap();
                    if counters().unwrap().accept_pauses > 0 {
                        break;
                    }
                }
            });
        }
        while clients.try_wait()?.is_none() {
            sleep(Duration::from_millis(1)).await;
        }
        assert!(clients.wait()?.success(), "a client got no answer");
        assert!(counters().unwrap().accept_pauses > 0, "descriptors never ran out");
        Ok(())
    });
}
