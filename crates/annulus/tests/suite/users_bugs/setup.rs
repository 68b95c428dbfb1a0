//! Rings that are refused or lack a feature, and rings that look busy.

use crate::common::{echo, pair, receive, run_on};
use crate::users_bugs::kernel::Bent;
use annulus::net::{ListenOptions, TcpStream};
use annulus::sim::{Profile, Sim, run_on as simulate_on};
use annulus::time::{Instant, timeout};
use annulus::{Builder, DriverChoice, DriverKind, Runtime, counters, spawn};
use annulus_kernel::{Kernel, Linux};
use annulus_ring::{SetupFlags, opcode};
use annulus_skip::skip;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::mpsc;
use std::time::Duration;

/// Completions overflowed at 3000 connections, and some of the connections stalled from then on.
#[test]
fn io_uring_302_cq_overflow_at_3000_connections() {
    // The older kernel posts completions as they occur, and not only when the application asks for
    // them.
    let overflows = [Profile::old(), Profile::current()].map(|profile| {
        let sim = Sim::builder(302).profile(profile).poison(0).build();
        simulate_on(&sim, tiny_queues(), echo_3000()).unwrap()
    });
    assert!(overflows[0] > 0, "the queue never overflowed");
}

#[test]
fn io_uring_302_cq_overflow_at_3000_connections_on_linux() {
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    if files.is_some_and(|most| most < 6500) {
        return skip!("{files:?} open files are allowed; `ulimit -n 6500` is enough");
    }
    run_on(tiny_queues(), echo_3000());
    run_on(tiny_queues().without(SetupFlags::DEFER_TASKRUN), echo_3000());
}

/// Settings with a completion queue that is far too small.
fn tiny_queues() -> Builder {
    Runtime::builder()
        .sq_entries(64)
        .cq_entries(64)
        .stream_buffer_size(4096)
        .stream_buffer_count(4096)
}

/// Echoes on 3000 connections at once. Returns the number of completion queue overflows.
async fn echo_3000() -> io::Result<u64> {
    let listener = ListenOptions::new().backlog(3000).bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let server = spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            spawn(echo(stream));
        }
    });
    let clients: Vec<_> = (0..3000).map(|_| spawn(three_rounds(address))).collect();
    for client in clients {
        client.await.expect("the task panicked")?;
    }
    server.abort();
    Ok(counters().unwrap().overflows)
}

async fn three_rounds(server: SocketAddr) -> io::Result<()> {
    let mut client = TcpStream::connect(server).await?;
    for round in 0..3_u8 {
        client.send(vec![round; 32]).await?;
        assert_eq!(receive(&mut client, 32).await?, [round; 32]);
    }
    Ok(())
}

/// ENOMEM at setup (memlock) ended the program, although another driver was available.
#[test]
fn compio_458_no_fallback_on_enomem_at_setup() {
    let short = Rc::new(Bent::Refuses(libc::ENOMEM));
    if std::env::var_os("ANNULUS_DRIVER").is_none() {
        let runtime = Runtime::builder().kernel(short.clone()).build().unwrap();
        assert_eq!(runtime.driver().kind, DriverKind::Epoll);
        assert!(runtime.driver().reason.contains("memlock"), "{}", runtime.driver());
        drop(runtime);
        let got = run_on(Runtime::builder().kernel(short.clone()), async {
            let (mut client, server) = pair().await?;
            spawn(echo(server));
            client.send("there and back").await?;
            receive(&mut client, 14).await
        });
        assert_eq!(got, b"there and back");
    }
    let demanded = Runtime::builder().driver(DriverChoice::Uring).kernel(short).build();
    let text = demanded.unwrap_err().to_string();
    assert!(text.contains("memlock") && text.contains("ulimit -l"), "{text}");
}

/// Nothing can replace these operations. Without them, the ring is refused with the operation's
/// name, and `auto` uses epoll.
const NEEDED: [u8; 7] = [
    opcode::POLL_ADD,
    opcode::SENDMSG,
    opcode::ACCEPT,
    opcode::ASYNC_CANCEL,
    opcode::CONNECT,
    opcode::SEND,
    opcode::RECV,
];

/// Operations without which the ring still works.
const REPLACED: [u8; 2] = [opcode::TIMEOUT, opcode::CLOSE];

/// An operation missing from the kernel caused a panic that did not name it.
#[test]
fn iggy_3589_an_opaque_panic_on_a_missing_opcode() {
    let all = NEEDED.map(|code| (code, false)).into_iter();
    for (code, works) in all.chain(REPLACED.map(|code| (code, true))) {
        let sim = Sim::builder(3589).profile(Profile::current().without(code)).build();
        let name = opcode::operation(code).unwrap().name;
        let ring = Runtime::builder().driver(DriverChoice::Uring);
        match simulate_on(&sim, ring, everything()) {
            Ok(()) => assert!(works, "the ring works without {name}"),
            Err(error) if works => panic!("{name} is replaced: {error}"),
            Err(error) => assert_names(&error, name),
        }
        simulate_on(&sim, Runtime::builder(), everything())
            .expect("epoll fails without the operation");
        assert_eq!(sim.open_descriptors(), 0, "without {name}: {:?}", sim.leftovers());
    }
}

/// Checks that the ring was refused at the start, in one line that says what is missing and what to
/// do.
fn assert_names(error: &io::Error, operation: &str) {
    let text = error.to_string();
    assert_eq!(error.kind(), io::ErrorKind::Unsupported, "without {operation}: {text}");
    let said = text.contains("lacks ") && text.contains("epoll");
    // Without accept or receive, the first missing feature that is found has a longer name.
    let named = text.to_lowercase().contains(&operation.to_lowercase()[..4]);
    assert!(said && named, "without {operation}: {text}");
    assert_eq!(text.lines().count(), 1, "without {operation}: {text}");
}

/// Connects, echoes small and large messages, lets a timeout expire, and shuts down.
async fn everything() -> io::Result<()> {
    let (mut client, server) = pair().await?;
    spawn(echo(server));
    client.send("one").await?;
    client.send_vectored(["two", "three"]).await?;
    assert_eq!(receive(&mut client, 11).await?, b"onetwothree");
    assert!(timeout(Duration::from_secs(20), client.recv()).await.is_err());
    client.send(vec![1; 1 << 20]).await?;
    assert_eq!(receive(&mut client, 1 << 20).await?.len(), 1 << 20);
    client.shutdown().await?;
    assert!(client.recv().await?.is_none());
    Ok(())
}

/// Returns true if, within `patience`, nothing was in iowait at some moment while `waits` returned
/// true.
fn is_quiet(patience: Duration, waits: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    let mut quiet = false;
    while !quiet && start.elapsed() < patience {
        quiet = waits() && in_iowait() == 0 && waits();
    }
    quiet
}

/// Returns the number of the machine's tasks that are in iowait now.
fn in_iowait() -> u64 {
    let text = std::fs::read_to_string("/proc/stat").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("procs_blocked ")).unwrap();
    line.trim().parse().unwrap()
}

/// Returns true if, within `patience`, nothing was in iowait at some moment while an idle runtime
/// waited on its ring.
fn waits_quietly(kernel: fn() -> Rc<dyn Kernel>, patience: Duration) -> bool {
    let (ready, is_ready) = mpsc::channel();
    let idle = std::thread::spawn(move || {
        let builder = Runtime::builder().driver(DriverChoice::Uring).kernel(kernel());
        let mut runtime = builder.build().unwrap();
        ready.send((runtime.handle(), rustix::thread::gettid())).unwrap();
        assert!(
            runtime.try_block_on(std::future::pending::<()>()).is_err(),
            "the idle runtime ended before it was stopped"
        );
    });
    let (handle, id) = is_ready.recv().unwrap();
    let call = format!("/proc/self/task/{}/syscall", id.as_raw_nonzero());
    let enter = format!("{} ", libc::SYS_io_uring_enter);
    let waits = || std::fs::read_to_string(&call).unwrap().starts_with(&enter);
    let quiet = is_quiet(patience, waits);
    handle.stop();
    idle.join().unwrap();
    quiet
}

/// An idle ring made the machine look as if it were always waiting for its disks.
#[test]
fn libxev_216_fake_iowait() {
    let Ok(features) = annulus_ring::Features::detect() else {
        return skip!("io_uring is blocked here");
    };
    if !features.has("honest iowait") {
        return skip!("this kernel cannot leave a wait out of iowait");
    }
    // Checks that the measurement works: it notices a ring that does not ask for quiet waits.
    let loud = !waits_quietly(|| Rc::new(Bent::WaitsLoudly), Duration::from_millis(300));
    assert!(loud, "procs_blocked does not count the wait of a ring");
    // Other processes may wait for their disks, but hardly all the time. If they do, the
    // measurement says nothing about the ring.
    let patience = Duration::from_secs(20);
    if !waits_quietly(|| Rc::new(Linux), patience) {
        assert!(!is_quiet(patience, || true), "an idle ring counts as iowait");
        skip!("other tasks of this machine are in iowait all the time");
    }
}
