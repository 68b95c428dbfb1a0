//! A seccomp filter makes system calls fail with errors that hardly ever occur. The program gets
//! the error, or the runtime continues; no loop spins. Each case runs on a separate thread, and its
//! filter ends with the thread.

mod common;

use annulus::fs::File;
use annulus::io::AsyncFd;
use annulus::net::{
    ConnectionLimit, ListenOptions, TcpListener, UdpSocket, UnixDatagram, UnixListener, UnixStream,
};
use annulus::time::{sleep, timeout};
use annulus::{DriverChoice, Runtime};
use annulus_skip::skip;
use common::denied::deny;
use common::pair;
use std::cell::RefCell;
use std::future::Future;
use std::io::{self, Read};
use std::rc::Rc;
use std::time::Duration;

const DRIVERS: [DriverChoice; 2] = [DriverChoice::Uring, DriverChoice::Epoll];

/// Runs a body on a separate thread and runtime.
fn on<F: Future<Output = io::Result<()>>>(driver: DriverChoice, body: impl Fn() -> F + Sync) {
    let ended = std::thread::scope(|scope| {
        let run = || {
            let Ok(mut runtime) = Runtime::builder().driver(driver).build() else {
                return skip!("no {driver} here");
            };
            runtime.block_on(body()).unwrap();
            assert_eq!(
                runtime.try_block_on(async { 7 }).unwrap(),
                7,
                "the runtime does not continue"
            );
        };
        scope.spawn(run).join()
    });
    assert!(ended.is_ok(), "{driver}");
}

#[test]
fn a_shutdown_that_fails_is_an_error() {
    for driver in DRIVERS {
        on(driver, async || {
            let (mut one, mut other) = pair().await?;
            one.send("last words").await?;
            deny(libc::SYS_shutdown, libc::EPERM);
            let error = one.shutdown().await.expect_err("the shutdown succeeded");
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
            assert_eq!(&*other.recv_exact(10).await?, b"last words");
            assert!(
                timeout(Duration::from_millis(5), other.recv()).await.is_err(),
                "the peer got an end"
            );
            drop(one);
            assert!(other.recv().await?.is_none(), "the close did not end the stream");
            Ok(())
        });
    }
}

#[test]
fn a_shutdown_after_a_reset_is_no_error() {
    for driver in DRIVERS {
        on(driver, async || {
            let (mut one, _other) = pair().await?;
            deny(libc::SYS_shutdown, libc::ENOTCONN);
            one.shutdown().await
        });
    }
}

#[test]
fn an_accept_reports_that_the_peers_address_is_denied() {
    for driver in DRIVERS {
        on(driver, async || {
            deny(libc::SYS_getpeername, libc::EPERM);
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let address = listener.local_addr()?;
            let client = std::thread::spawn(move || {
                std::net::TcpStream::connect(address)?.read(&mut [0; 8])
            });
            let error = listener.accept().await.expect_err("the accept succeeded");
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
            assert!(error.to_string().contains("getpeername"), "{error}");
            client.join().unwrap().map(drop)
        });
    }
}

#[test]
fn a_connection_that_was_reset_before_it_was_accepted_is_skipped() {
    for driver in DRIVERS {
        on(driver, async || {
            deny(libc::SYS_getpeername, libc::ENOTCONN);
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let _client = std::net::TcpStream::connect(listener.local_addr()?)?;
            let accepted = timeout(Duration::from_millis(50), listener.accept()).await;
            assert!(accepted.is_err(), "{accepted:?}");
            let counters = annulus::counters().expect("not in a runtime");
            assert_eq!(counters.aborted_accepts, 1);
            Ok(())
        });
    }
}

#[test]
fn a_close_that_fails_harms_nothing() {
    for driver in DRIVERS {
        on(driver, async || {
            deny(libc::SYS_close, libc::EIO);
            let task = annulus::spawn(async { File::open("/proc/self/exe").await.map(drop) });
            task.await.expect("the task panicked")?;
            for _ in 0..3 {
                let (mut one, mut other) = UnixStream::pair()?;
                one.send("x").await?;
                other.recv().await?;
                drop((one, other));
                annulus::task::yield_now().await;
            }
            drop((TcpListener::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?));
            Ok(())
        });
    }
}

/// Waits on sockets and pipes in both directions, while epoll can register nothing. Returns the
/// results of the operations that ended within 200 ms, and the number of turns in this time.
async fn wait_while_epoll_refuses(
    errno: i32,
) -> io::Result<(Vec<(&'static str, io::Result<()>)>, u64)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let limit = ConnectionLimit::new(1);
    let limited = ListenOptions::new().limit(&limit).bind("127.0.0.1:0")?;
    let (mut stream, _peer) = UnixStream::pair()?;
    let (mut full, _peer) = UnixStream::pair()?;
    let (mut full_of_pages, _peer) = UnixStream::pair()?;
    let mut file = File::open("/proc/self/exe").await?;
    let udp = UdpSocket::bind("127.0.0.1:0")?;
    let (datagrams, _peer) = UnixDatagram::pair()?;
    let (mut full_pipe, _reader) = annulus::pipe::pipe()?;
    let (_writer, mut reader) = annulus::pipe::pipe()?;
    let (fd, _kept) = std::os::unix::net::UnixStream::pair()?;
    fd.set_nonblocking(true)?;
    let fd = AsyncFd::new(fd)?;
    deny(libc::SYS_epoll_ctl, errno);
    let error = timeout(Duration::from_millis(50), fd.readable()).await.expect("the call hangs");
    let ended = Rc::new(RefCell::new(vec![("readable", error.map(drop))]));
    let before = annulus::counters().expect("not in a runtime").enters;
    macro_rules! wait {
        ($name:literal, $operation:expr) => {{
            let ended = ended.clone();
            annulus::spawn(async move {
                let result = async { $operation }.await;
                ended.borrow_mut().push(($name, result.map(drop)));
            });
        }};
    }
    wait!("accept", listener.accept().await);
    wait!("limited accept", limited.accept().await);
    wait!("recv", stream.recv().await);
    wait!("recv datagram", udp.recv().await);
    wait!("recv from pipe", reader.recv().await);
    wait!("drain", {
        _ = full.send(vec![0; 8 << 20]).await;
        full.drain().await
    });
    wait!("copy pages", annulus::io::copy(&mut file, &mut full_of_pages).await);
    wait!("drain pipe", {
        _ = full_pipe.send(vec![0; 8 << 20]).await;
        full_pipe.drain().await
    });
    wait!("drain datagrams", {
        for _ in 0..1000 {
            datagrams.send(vec![0; 1000]).await?;
        }
        datagrams.drain().await
    });
    sleep(Duration::from_millis(200)).await;
    let turns = annulus::counters().expect("not in a runtime").enters - before;
    Ok((ended.take(), turns))
}

#[test]
fn epoll_without_memory_is_retried_after_a_pause() {
    on(DriverChoice::Epoll, async || {
        let (ended, turns) = wait_while_epoll_refuses(libc::ENOMEM).await?;
        let [("readable", Err(error))] = &ended[..] else {
            panic!("an operation finished without memory: {ended:?}");
        };
        assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
        // Operations are retried every 5 ms, and some less often. Each attempt may take a turn or
        // two.
        assert!((10..2000).contains(&turns), "{turns} turns in 200 ms");
        Ok(())
    });
}

/// `epoll_ctl` fails with ENOSPC if the user already watches `fs.epoll.max_user_watches`
/// descriptors. Nothing reports when it would succeed again.
#[test]
fn the_limit_on_watched_descriptors_is_an_error_that_says_so() {
    on(DriverChoice::Epoll, async || {
        let (ended, turns) = wait_while_epoll_refuses(libc::ENOSPC).await?;
        for (name, result) in &ended {
            let error = result.as_ref().expect_err("an operation has succeeded").to_string();
            assert!(error.contains("fs.epoll.max_user_watches"), "{name}: {error}");
        }
        let mut names: Vec<_> = ended.into_iter().map(|(name, _)| name).collect();
        names.sort_unstable();
        let failed = [
            "accept",
            "copy pages",
            "drain",
            "drain datagrams",
            "drain pipe",
            "limited accept",
            "readable",
            "recv",
            "recv datagram",
            "recv from pipe",
        ];
        assert_eq!(names, failed);
        assert!(turns < 500, "{turns} turns in 200 ms");
        Ok(())
    });
}

/// A full file system refuses the name of a Unix socket with the error of that limit.
#[test]
fn a_name_that_a_full_file_system_refuses_is_not_blamed_on_the_limit() {
    for driver in DRIVERS {
        on(driver, async || {
            deny(libc::SYS_bind, libc::ENOSPC);
            let path = std::env::temp_dir().join("annulus-denied-name");
            let datagram = UnixDatagram::bind(&path).map(drop);
            let listener = UnixListener::bind(&path).map(drop);
            for error in [datagram, listener].map(|bound| bound.expect_err("the name was bound")) {
                assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{error}");
                assert!(!error.to_string().contains("watches"), "{error}");
            }
            Ok(())
        });
    }
}
