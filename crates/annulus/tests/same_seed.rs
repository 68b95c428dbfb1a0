//! A simulation depends only on its seed: two processes with different addresses and hash keys
//! behave the same.

mod common;

use annulus::fs::{self, Dir, FileCache};
use annulus::net::{TcpListener, TcpStream, UdpSocket};
use annulus::shards::channel;
use annulus::sim::{Disturbances, Faults, Network, Sim, run_on};
use annulus::task::{JoinSet, spawn_blocking, yield_now};
use annulus::time::{Instant, interval, sleep, timeout};
use annulus::{DriverChoice, Runtime, counters, spawn};
use common::rerun::{assert_passed, rerun};
use std::cell::RefCell;
use std::fmt::Write;
use std::future::{pending, ready};
use std::io;
use std::rc::Rc;
use std::time::Duration;

const PREFIX: &str = "trace: ";

/// Returns the trace of a separate process that simulates with a seed.
fn in_a_process(seed: u64) -> Vec<String> {
    let output = rerun!(child_with_a_seed).env("SEED", seed.to_string()).output();
    let output = output.expect("the test program does not start");
    assert_passed(&output);
    let text = String::from_utf8(output.stdout).expect("not UTF-8");
    text.lines().filter_map(|line| line.strip_prefix(PREFIX)).map(String::from).collect()
}

#[test]
fn a_seed_does_the_same_in_two_processes() {
    let (one, two, other) = (in_a_process(7), in_a_process(7), in_a_process(8));
    assert!(one.len() >= 30, "{one:#?}");
    for (first, second) in one.iter().zip(&two) {
        assert_eq!(first, second);
    }
    assert_eq!(one.len(), two.len());
    assert_ne!(one, other);
    // Both branches are taken, in an order that the seed determines.
    let branches = |trace: &[String]| {
        trace.iter().find(|line| line.starts_with("select")).cloned().expect("select is missing")
    };
    assert!(branches(&one).contains('a') && branches(&one).contains('b'), "{one:#?}");
    assert_ne!(branches(&one), branches(&other));
}

#[test]
#[ignore = "a child of the test above"]
fn child_with_a_seed() {
    let seed = std::env::var("SEED").expect("not run by its parent").parse().expect("not a number");
    for choice in [DriverChoice::Uring, DriverChoice::Epoll] {
        let sim = Sim::builder(seed).chaos().build();
        let trace = Trace::default();
        let ran = run_on(&sim, Runtime::builder().driver(choice), single_host(trace.clone()));
        trace.note(format!("{:?} {:?} hash {:x}", ran, sim.counts(), sim.trace_hash()));
        trace.print();
    }
    network(seed).print();
}

/// The events of a run, one per line.
#[derive(Clone, Default)]
struct Trace(Rc<RefCell<Vec<String>>>);

impl Trace {
    fn note(&self, text: String) {
        self.0.borrow_mut().push(text);
    }

    fn print(&self) {
        // Prints each event on a separate line, even after output of the test harness.
        let lines = self.0.borrow();
        println!("\n{}", lines.iter().map(|line| format!("{PREFIX}{line}\n")).collect::<String>());
    }
}

async fn single_host(trace: Trace) -> io::Result<()> {
    trace.note(format!("select {}", branches().await));
    trace.note(tasks().await);
    trace.note(format!("{:?}", timers().await));
    trace.note(files().await);
    trace.note(format!("{:?}", streams().await));
    trace.note(format!("{:?}", datagrams().await));
    trace.note(format!("{:?} {:?}", Instant::now(), counters().expect("not in a runtime")));
    Ok(())
}

async fn branches() -> String {
    let mut taken = String::new();
    for _ in 0..50 {
        annulus::select! { () = ready(()) => taken.push('a'), () = ready(()) => taken.push('b') }
        annulus::select! {
            () = pending() => {}
            () = yield_now() => taken.push('c'),
            () = yield_now() => taken.push('d'),
            () = yield_now() => taken.push('e'),
        }
    }
    taken
}

/// Returns the order in which tasks run and end, and the values that they send.
async fn tasks() -> String {
    let (sender, mut receiver) = channel(100);
    let mut set = JoinSet::new();
    for n in 0..20u64 {
        let sender = sender.clone();
        set.spawn(async move {
            for _ in 0..n % 4 {
                yield_now().await;
            }
            sender.send(n).await.expect("the receiver was dropped");
            spawn_blocking(move || n).await.expect("the call panicked")
        });
    }
    let mut text = String::new();
    while let Some(ended) = set.join_next().await {
        write!(text, "{} ", ended.expect("the task panicked")).expect("the text cannot be written");
    }
    for _ in 0..20 {
        write!(text, "{:?} ", receiver.recv().await).expect("the text cannot be written");
    }
    let (one, two) = annulus::join!(async { 1 }, async {
        yield_now().await;
        2
    });
    text + &format!("{one} {two}")
}

async fn timers() -> Vec<(u32, Instant)> {
    let mut ticks = interval(Duration::from_millis(7));
    let late = Rc::new(RefCell::new(Vec::new()));
    let sleepers: Vec<_> = (0..10)
        .map(|n| {
            let late = late.clone();
            spawn(async move {
                sleep(Duration::from_millis(u64::from(n % 3))).await;
                late.borrow_mut().push((n, Instant::now()));
            })
        })
        .collect();
    for _ in 0..5 {
        ticks.tick().await;
    }
    for sleeper in sleepers {
        sleeper.await.expect("the task panicked");
    }
    late.take()
}

/// Writes and reads files, through a cache that evicts most of them.
async fn files() -> String {
    let mut text = String::new();
    let work = async {
        fs::create_dir_all("/d").await?;
        for n in 0..16 {
            fs::write(format!("/d/{n}"), vec![n as u8; 100 * n]).await?;
        }
        let cache = FileCache::new(Dir::open("/d").await?);
        cache.set_capacity(4);
        for n in (0..40).map(|n| n * 7 % 16) {
            let opened = cache.open(n.to_string()).await;
            let opened = opened.map(drop).map_err(|error| error.to_string());
            write!(text, "{n} {opened:?} {:?}, ", cache.stats())
                .expect("the text cannot be written");
        }
        let mut entries = fs::read_dir("/d").await?;
        while let Some(entry) = entries.next_entry().await? {
            write!(text, "{:?} ", entry.file_name()).expect("the text cannot be written");
        }
        io::Result::Ok(())
    };
    let worked = work.await.map_err(|error| error.to_string());
    format!("{text} {worked:?}")
}

async fn streams() -> io::Result<Vec<String>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    spawn(async move {
        while let Ok((mut stream, peer)) = listener.accept().await {
            spawn(async move {
                while let Ok(Some(lease)) = stream.recv().await {
                    if stream.send(lease).await.is_err() {
                        break;
                    }
                }
                peer
            });
        }
    });
    let mut set = JoinSet::new();
    for n in 0..10u8 {
        set.spawn(async move {
            let talk = async {
                let mut stream = TcpStream::connect(address).await?;
                let local = stream.local_addr()?;
                stream.send(vec![n; 10_000]).await?;
                stream.shutdown().await?;
                let mut pieces = Vec::new();
                while let Some(lease) = stream.recv().await? {
                    pieces.push(lease.len());
                }
                io::Result::Ok(format!("{n} {local} {pieces:?}"))
            };
            timeout(Duration::from_secs(60), talk).await
        });
    }
    let mut ended = Vec::new();
    while let Some(result) = set.join_next().await {
        let text = match result.expect("the task panicked") {
            Ok(talked) => talked.unwrap_or_else(|error| error.to_string()),
            Err(late) => late.to_string(),
        };
        ended.push(format!("{text} at {:?}", Instant::now()));
    }
    Ok(ended)
}

async fn datagrams() -> io::Result<Vec<u8>> {
    let (one, two) = (UdpSocket::bind("127.0.0.1:9000")?, UdpSocket::bind("127.0.0.1:0")?);
    for n in 0..30 {
        _ = two.send_to(vec![n], "127.0.0.1:9000".parse().expect("not an address")).await;
    }
    let mut order = Vec::new();
    while let Ok(Ok((lease, _))) = timeout(Duration::from_secs(1), one.recv_from()).await {
        order.push(lease[0]);
    }
    Ok(order)
}

/// Runs three hosts and two clients under disturbances.
fn network(seed: u64) -> Trace {
    let (network, trace) = (Network::new(seed), Trace::default());
    for name in ["one", "two", "three"] {
        let noted = trace.clone();
        let program = move || {
            let noted = noted.clone();
            async move {
                noted.note(format!("{name} starts at {:?}, {}", Instant::now(), branches().await));
                let listener = TcpListener::bind("0.0.0.0:80")?;
                loop {
                    let (mut stream, peer) = listener.accept().await?;
                    noted.note(format!("{name} {peer} at {:?}", Instant::now()));
                    spawn(async move {
                        while let Ok(Some(lease)) = stream.recv().await {
                            stream.send(lease).await?;
                        }
                        io::Result::Ok(())
                    });
                }
                #[expect(unreachable_code, reason = "the type of the result")]
                io::Result::Ok(())
            }
        };
        network.host(name, program).expect("the host cannot be added");
    }
    for name in ["client", "other"] {
        let (sends, noted) = (network.clone(), trace.clone());
        let program = async move {
            sends.disturb(Disturbances::default());
            for n in 0..20 {
                let server = ["one:80", "two:80", "three:80"][n % 3];
                let talk = async {
                    let mut stream = TcpStream::connect(server).await?;
                    stream.send(vec![n as u8; 1000]).await?;
                    stream.recv_exact(1000).await.map(drop)
                };
                let talked = annulus::select! {
                    talked = talk => format!("{talked:?}"),
                    () = sleep(Duration::from_secs(2)) => "late".into(),
                };
                noted.note(format!("{name} {server} {talked} at {:?}", Instant::now()));
                sleep(Duration::from_millis(300)).await;
            }
            sends.calm();
            io::Result::Ok(())
        };
        network.client(name, program).expect("the client cannot be added");
    }
    network.run().expect("a client failed");
    trace
}

/// The choices of `select!` do not affect the other random numbers: the same faults occur.
#[test]
fn choices_of_select_do_not_affect_other_random_numbers() {
    let hash = |count| {
        let sim = Sim::builder(3).faults(Faults::default()).build();
        run_on(&sim, Runtime::builder(), async {
            for _ in 0..count {
                annulus::select! { () = ready(()) => {} () = ready(()) => {} }
            }
            streams().await
        })
        .expect("the streams failed without faults");
        sim.trace_hash()
    };
    assert_eq!(hash(0), hash(100));
}
