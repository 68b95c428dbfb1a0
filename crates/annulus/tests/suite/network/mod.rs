//! Hosts on one simulated network: their addresses and names, and the faults of the network.
#![cfg(feature = "sim")]

mod crashes;
mod layers;
mod overload;
mod panics;
mod programs;
mod race;
mod seeds;
mod signals;
mod without_ring;

use annulus::io::copy_bidirectional;
use annulus::net::{KeepAlive, TcpListener, TcpStream, UdpSocket};
use annulus::sim::{Disturbance, Disturbances, Link, Network, Sim, check, find_failure};
use annulus::time::{Instant, sleep, timeout};
use annulus::{Runtime, spawn};
use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind};
use std::panic::catch_unwind;
use std::rc::Rc;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// Echoes what connections send, and passes on their end.
async fn echo() -> io::Result<()> {
    let listener = TcpListener::bind("0.0.0.0:7")?;
    loop {
        let (mut stream, _) = listener.accept().await?;
        spawn(async move {
            while let Some(lease) = stream.recv().await? {
                stream.send(lease).await?;
            }
            stream.shutdown().await
        });
    }
}

async fn ping(stream: &mut TcpStream) -> io::Result<Duration> {
    let start = Instant::now();
    stream.send("ping").await?;
    assert_eq!(&*stream.recv_exact(4).await?, b"ping");
    Ok(start.elapsed())
}

/// Runs a network with an echo server and a client that may disturb it.
fn with_echo<F: Future<Output = io::Result<()>> + 'static>(
    client: impl FnOnce(Network) -> F,
) -> io::Result<Network> {
    let network = Network::new(5);
    network.host("server", echo)?;
    network.client("client", client(network.clone()))?;
    network.run()?;
    Ok(network)
}

/// Sends each connection the addresses of both its ends. The listener has the same address on each
/// host, and no other host's address.
async fn greet(name: &str) -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:80")?;
    let elsewhere =
        TcpListener::bind("10.0.0.3:80").expect_err("an address of another host was bound");
    assert_eq!(elsewhere.kind(), ErrorKind::AddrNotAvailable);
    loop {
        let (mut stream, peer) = listener.accept().await?;
        stream.send(format!("{name} {} {}", listener.local_addr()?.ip(), peer.ip())).await?;
    }
}

#[test]
fn each_host_has_its_own_address() -> io::Result<()> {
    let network = Network::new(1);
    for name in ["one", "two"] {
        network.host(name, move || greet(name))?;
    }
    let udp = network.host("udp", async || {
        let socket = UdpSocket::bind("0.0.0.0:9")?;
        let (datagram, from) = socket.recv_from().await?;
        socket.send_to(format!("{from} {}", datagram.len()), from).await
    })?;
    network.client("client", async move {
        for (name, answer) in [("one", "one 10.0.0.1 10.0.0.4"), ("two", "two 10.0.0.2 10.0.0.4")] {
            let mut stream = TcpStream::connect((name, 80)).await?;
            assert_eq!(&*stream.recv_exact(answer.len()).await?, answer.as_bytes());
        }
        let refused =
            TcpStream::connect("localhost:80").await.expect_err("a host without a server accepted");
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        let socket = UdpSocket::bind("0.0.0.0:1000")?;
        socket.send_to(vec![0; 5], (udp, 9).into()).await?;
        assert_eq!(&*socket.recv_from().await?.0, b"10.0.0.4:1000 5");
        let unknown = TcpStream::connect("three:80").await.expect_err("an unknown host was found");
        assert!(unknown.to_string().contains("known hosts: one, two, udp, client"), "{unknown}");
        io::Result::Ok(())
    })?;
    network.run()
}

#[test]
fn a_partition_stalls_and_a_reset_ends_connections() -> io::Result<()> {
    with_echo(async |network| {
        let mut stream = TcpStream::connect("server:7").await?;
        ping(&mut stream).await?;
        network.partition("client", "server")?;
        stream.send("held").await?;
        assert!(
            timeout(SECOND, stream.recv()).await.is_err(),
            "bytes arrived from a host that was cut off"
        );
        network.repair("client", "server")?;
        assert_eq!(&*stream.recv_exact(4).await?, b"held");
        network.reset("client", "server")?;
        let reset = stream.recv().await.expect_err("the stream was not reset");
        assert_eq!(reset.kind(), ErrorKind::ConnectionReset);
        ping(&mut TcpStream::connect("server:7").await?).await?;
        Ok(())
    })
    .map(drop)
}

#[test]
fn a_link_delays_and_slows_only_its_pair() -> io::Result<()> {
    with_echo(async |network| {
        let mut stream = TcpStream::connect("server:7").await?;
        assert!(ping(&mut stream).await? < SECOND / 1000);
        let far = Link { latency: SECOND / 10, ..Link::default() };
        network.link("server", "client", Some(far))?;
        sleep(SECOND).await;
        let took = ping(&mut stream).await?;
        assert!((SECOND / 5..SECOND / 4).contains(&took), "{took:?}");
        network.link("server", "client", Some(Link { bandwidth: 1000, ..Link::default() }))?;
        sleep(SECOND).await;
        let start = Instant::now();
        stream.send(vec![1; 5000]).await?;
        stream.recv_exact(5000).await?;
        // Bytes are echoed while others arrive.
        assert!((5 * SECOND..6 * SECOND).contains(&start.elapsed()), "{:?}", start.elapsed());
        network.link("server", "client", None)?;
        sleep(SECOND).await;
        assert!(ping(&mut stream).await? < SECOND / 1000);
        Ok(())
    })
    .map(drop)
}

#[test]
fn a_connection_recovers_when_its_link_is_no_longer_slow() -> io::Result<()> {
    with_echo(async |network| {
        let mut stream = TcpStream::connect("server:7").await?;
        network.link("server", "client", Some(Link { bandwidth: 1000, ..Link::default() }))?;
        sleep(SECOND).await;
        stream.send(vec![1; 100_000]).await?;
        sleep(SECOND).await;
        network.link("server", "client", None)?;
        sleep(SECOND).await;
        let start = Instant::now();
        stream.recv_exact(100_000).await?;
        assert!(start.elapsed() < SECOND, "{:?}", start.elapsed());
        Ok(())
    })
    .map(drop)
}

/// One socket sends to two hosts, to one of them over a link that is slow and long.
#[test]
fn a_slow_link_delays_no_datagrams_to_other_hosts() -> io::Result<()> {
    let network = Network::new(3);
    let far = network.client("far", async { io::Result::Ok(()) })?;
    let near = network.client("near", async {
        let socket = UdpSocket::bind("0.0.0.0:9")?;
        let (datagram, _) = timeout(SECOND, socket.recv_from()).await??;
        assert_eq!(&*datagram, b"second");
        io::Result::Ok(())
    })?;
    let link = Link { bandwidth: 10, latency: 60 * SECOND, ..Link::default() };
    let settings = network.clone();
    network.client("sender", async move {
        settings.link("sender", "far", Some(link))?;
        sleep(SECOND / 2).await;
        let socket = UdpSocket::bind("0.0.0.0:9")?;
        // Far more than the link carries, and than fits into the send buffer.
        for _ in 0..300 {
            socket.send_to(vec![1; 1000], (far, 9).into()).await?;
        }
        socket.send_to("second", (near, 9).into()).await?;
        sleep(SECOND).await;
        io::Result::Ok(())
    })?;
    network.run()
}

#[test]
fn the_report_about_a_closed_port_takes_as_long_as_its_link() -> io::Result<()> {
    with_echo(async |network| {
        network.link("server", "client", Some(Link { latency: SECOND, ..Link::default() }))?;
        sleep(SECOND).await;
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.connect("server:99").await?;
        let start = Instant::now();
        socket.send("to nobody").await?;
        let refused = socket.recv().await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        assert!(start.elapsed() >= 2 * SECOND, "{:?}", start.elapsed());
        // A report does not cross a partition.
        socket.send("to nobody").await?;
        sleep(3 * SECOND / 2).await;
        network.partition("server", "client")?;
        assert!(timeout(5 * SECOND, socket.recv()).await.is_err());
        Ok(())
    })
    .map(drop)
}

#[test]
fn a_crash_leaves_connections_half_open_until_the_host_answers_again() -> io::Result<()> {
    with_echo(async |network| {
        let mut stream = TcpStream::connect("server:7").await?;
        let mut silent = TcpStream::connect("server:7").await?;
        ping(&mut stream).await?;
        ping(&mut silent).await?;
        network.crash("server")?;
        assert!(
            timeout(100 * SECOND, stream.recv()).await.is_err(),
            "the crash was reported to the peer"
        );
        stream.send("into the void").await?;
        let unanswered = timeout(SECOND, TcpStream::connect("server:7")).await;
        assert!(unanswered.is_err(), "a host without power answered");
        network.bounce("server")?;
        let reset = stream.recv().await.expect_err("the stream was not reset after the crash");
        assert_eq!(reset.kind(), ErrorKind::ConnectionReset);
        assert!(
            timeout(100 * SECOND, silent.recv()).await.is_err(),
            "an idle connection was reset"
        );
        ping(&mut TcpStream::connect("server:7").await?).await?;
        Ok(())
    })
    .map(drop)
}

#[test]
fn probes_end_a_silent_connection_to_a_crashed_host() -> io::Result<()> {
    with_echo(async |network| {
        let mut stream = TcpStream::connect("server:7").await?;
        let probes = KeepAlive { time: 10 * SECOND, interval: 5 * SECOND, retries: 3 };
        stream.set_keepalive(Some(probes))?;
        ping(&mut stream).await?;
        network.partition("server", "client")?;
        assert!(timeout(20 * SECOND, stream.recv()).await.is_err());
        network.repair("server", "client")?;
        assert!(timeout(100 * SECOND, stream.recv()).await.is_err(), "it answers again");
        ping(&mut stream).await?;
        network.crash("server")?;
        let start = Instant::now();
        assert_eq!(stream.recv().await.unwrap_err().kind(), ErrorKind::TimedOut);
        assert!((25 * SECOND..26 * SECOND).contains(&start.elapsed()), "{:?}", start.elapsed());
        Ok(())
    })
    .map(drop)
}

/// As on Linux, a connection is not probed while it repeats bytes.
#[test]
fn bytes_that_do_not_arrive_end_their_connection() -> io::Result<()> {
    with_echo(async |network| {
        let mut limited = TcpStream::connect("server:7").await?;
        limited.set_user_timeout(Some(30 * SECOND))?;
        let mut probed = TcpStream::connect("server:7").await?;
        let probes = KeepAlive { time: SECOND, interval: SECOND, retries: 1 };
        probed.set_keepalive(Some(probes))?;
        network.partition("server", "client")?;
        sleep(SECOND).await;
        limited.send("late").await?;
        probed.send("late").await?;
        assert!(timeout(20 * SECOND, limited.recv()).await.is_err());
        network.repair("server", "client")?;
        assert_eq!(&*limited.recv_exact(4).await?, b"late");
        assert_eq!(&*probed.recv_exact(4).await?, b"late");
        network.partition("server", "client")?;
        sleep(SECOND).await;
        let start = Instant::now();
        limited.send("lost").await?;
        probed.send("lost").await?;
        assert_eq!(limited.recv().await.unwrap_err().kind(), ErrorKind::TimedOut);
        assert!((30 * SECOND..31 * SECOND).contains(&start.elapsed()), "{:?}", start.elapsed());
        assert_eq!(probed.recv().await.unwrap_err().kind(), ErrorKind::TimedOut);
        assert!((924 * SECOND..926 * SECOND).contains(&start.elapsed()), "{:?}", start.elapsed());
        network.repair("server", "client")?;
        ping(&mut TcpStream::connect("server:7").await?).await?;
        Ok(())
    })
    .map(drop)
}

#[test]
fn bytes_of_a_crashed_host_do_not_arrive_later() -> io::Result<()> {
    let network = Network::new(2);
    network.host("server", async || {
        let listener = TcpListener::bind("0.0.0.0:7")?;
        let (mut stream, _) = listener.accept().await?;
        stream.send(vec![7; 100_000]).await?;
        std::future::pending::<io::Result<()>>().await
    })?;
    let faults = network.clone();
    network.client("client", async move {
        faults.link("client", "server", Some(Link { bandwidth: 10_000, ..Link::default() }))?;
        let mut stream = TcpStream::connect("server:7").await?;
        sleep(SECOND).await;
        faults.crash("server")?;
        sleep(SECOND).await;
        faults.bounce("server")?;
        let mut received = 0;
        while let Ok(Ok(Some(lease))) = timeout(100 * SECOND, stream.recv()).await {
            received += lease.len();
        }
        assert!(received < 100_000, "{received}");
        io::Result::Ok(())
    })?;
    network.run()
}

#[test]
fn a_host_is_dropped_at_a_crash_and_started_again() -> io::Result<()> {
    struct Alive(Rc<Cell<i32>>);
    impl Drop for Alive {
        fn drop(&mut self) {
            self.0.set(self.0.get() - 1);
        }
    }
    let (alive, starts) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let network = Network::new(2);
    let (living, started) = (alive.clone(), starts.clone());
    network.host("server", move || {
        living.set(living.get() + 1);
        started.set(started.get() + 1);
        let guard = Alive(living.clone());
        async move {
            spawn(async move {
                let _guard = guard;
                std::future::pending::<()>().await;
            });
            io::Result::Ok(())
        }
    })?;
    let (faults, count) = (network.clone(), alive.clone());
    network.client("client", async move {
        sleep(SECOND).await;
        assert_eq!(count.get(), 1, "a task ended with its program");
        faults.crash("server")?;
        sleep(SECOND).await;
        assert_eq!(count.get(), 0);
        for _ in 0..3 {
            faults.bounce("server")?;
            sleep(SECOND).await;
            assert_eq!(count.get(), 1);
        }
        io::Result::Ok(())
    })?;
    network.run()?;
    assert_eq!((starts.get(), alive.get(), network.sim().open_descriptors()), (4, 0, 0));
    Ok(())
}

#[test]
fn a_task_of_one_host_wakes_a_task_of_another() -> io::Result<()> {
    let network = Network::new(3);
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let (back, forth) = tokio::sync::oneshot::channel();
    network.client("one", async move {
        sender.send(1).expect("the other client has ended");
        assert_eq!(forth.await, Ok(2));
        io::Result::Ok(())
    })?;
    network.client("two", async move {
        assert_eq!(receiver.await, Ok(1));
        sleep(SECOND).await;
        back.send(2).expect("the other client has ended");
        io::Result::Ok(())
    })?;
    network.run()?;
    assert!(network.elapsed() < 2 * SECOND);
    Ok(())
}

/// Returns the error of a run whose client does not end.
fn hangs(client: impl Future<Output = io::Result<()>> + 'static) -> io::Error {
    let network = Network::new(3);
    network.host("server", echo).unwrap();
    network.client("client", client).unwrap();
    network.time_limit(1000 * SECOND);
    network.run().expect_err("the run ended")
}

#[test]
fn a_deadlock_report_contains_the_lines_that_added_the_hosts() -> io::Result<()> {
    let network = Network::new(3);
    let lines = [line!() + 1, line!() + 2];
    network.host("server", echo)?;
    network.client("client", std::future::pending::<io::Result<()>>())?;
    let deadlock = network.run().expect_err("the run ended").to_string();
    for (name, line) in ["server", "client"].into_iter().zip(lines) {
        let place = format!("{name}: task spawned at {}:{line} ", file!());
        assert!(deadlock.contains(&place), "{deadlock}");
    }
    Ok(())
}

#[test]
fn a_run_that_cannot_end_is_an_error() {
    let deadlock = hangs(std::future::pending());
    assert_eq!(deadlock.kind(), ErrorKind::Deadlock);
    assert!(deadlock.to_string().contains("client: task"), "{deadlock}");
    assert!(deadlock.to_string().contains("server: task"), "{deadlock}");
    let endless = hangs(async {
        loop {
            sleep(SECOND).await;
        }
    });
    assert_eq!(endless.kind(), ErrorKind::TimedOut);
    assert!(endless.to_string().starts_with("the run takes longer than 1000s"), "{endless}");
}

#[test]
fn failures_contain_their_host_and_bad_names_are_errors() -> io::Result<()> {
    let network = Network::new(1);
    assert_eq!(
        network.run().expect_err("a network without clients ran").kind(),
        ErrorKind::InvalidInput
    );
    network.host("server", async || Err::<(), _>("no licence"))?;
    network.client("client", async {
        sleep(SECOND).await;
        io::Result::Ok(())
    })?;
    assert_eq!(network.run().expect_err("the host did not fail").to_string(), "server: no licence");

    let network = Network::new(1);
    network.client("client", async { io::Result::Ok(()) })?;
    for bad in ["", "10.0.0.1", "a:b", "localhost", "client"] {
        let error = network.host(bad, echo).expect_err("the name was accepted");
        assert!(error.to_string().contains(bad), "{error}");
    }
    let unknown =
        network.partition("client", "sever").expect_err("an unknown host was partitioned");
    assert_eq!(unknown.kind(), ErrorKind::NotFound);
    assert_eq!(
        network.crash("client").expect_err("a client crashed").kind(),
        ErrorKind::InvalidInput
    );
    let kinds = Disturbances { kinds: &[], ..Disturbances::default() };
    network.disturb(kinds);
    assert_eq!(
        network.run().expect_err("a network with no kinds of disturbance ran").kind(),
        ErrorKind::InvalidInput
    );
    Ok(())
}

/// Returns what a client observes on a disturbed network: times and outcomes, the trace, and how
/// often it failed or took long.
fn disturbed(seed: u64, kinds: &'static [Disturbance]) -> (Vec<String>, u64, u32) {
    let sim = Sim::builder(seed).build();
    let network = Network::on(&sim, seed, Runtime::builder());
    network.host("server", echo).unwrap();
    network.host("other", echo).unwrap();
    let pause = Duration::from_millis(10)..SECOND;
    network.disturb(Disturbances { kinds, pause, ..Disturbances::default() });
    let seen = Rc::new(RefCell::new((Vec::new(), 0)));
    let (faults, log) = (network.clone(), seen.clone());
    let client = async move {
        for name in ["server", "other"].into_iter().cycle().take(40) {
            let asked = async {
                let mut stream = TcpStream::connect((name, 7)).await?;
                ping(&mut stream).await?;
                sleep(SECOND / 5).await;
                ping(&mut stream).await
            };
            let outcome = timeout(2 * SECOND, asked).await;
            log.borrow_mut().0.push(format!("{:?} {outcome:?}", faults.elapsed()));
            log.borrow_mut().1 +=
                u32::from(!matches!(outcome, Ok(Ok(took)) if took < SECOND / 1000));
        }
        faults.calm();
        // The disturbances have ended, so every connect and every answer succeeds.
        for name in ["server", "other"] {
            sleep(SECOND).await;
            ping(&mut TcpStream::connect((name, 7)).await?).await?;
        }
        io::Result::Ok(())
    };
    network.client("client", client).unwrap();
    network.run().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    let (lines, felt) = seen.take();
    (lines, sim.trace_hash(), felt)
}

#[test]
fn a_seed_gives_one_run_whatever_disturbs_it() {
    let all = Disturbance::ALL;
    assert_eq!(disturbed(1, all), disturbed(1, all));
    assert_ne!(disturbed(1, all).1, disturbed(2, all).1);
}

#[test]
fn every_kind_of_disturbance_begins_and_ends() {
    // The programs here have no files.
    let felt_without_files = [Disturbance::NETWORK, &[Disturbance::PowerCut]];
    for kinds in felt_without_files.into_iter().flat_map(|kinds| kinds.chunks(1)) {
        let felt: u32 = (0..5).map(|seed| disturbed(seed, kinds).2).sum();
        assert!(felt > 0, "{kinds:?}");
    }
}

/// A proxy whose copies are dropped and restarted after random times.
async fn restless_proxy(seed: u64) -> io::Result<()> {
    let listener = TcpListener::bind("0.0.0.0:8")?;
    let mut micros = seed;
    loop {
        let (mut near, _) = listener.accept().await?;
        micros = (micros * 31 + 7) % 5000;
        let patience = Duration::from_micros(micros);
        spawn(async move {
            let mut far = TcpStream::connect("server:7").await?;
            loop {
                match timeout(patience, copy_bidirectional(&mut near, &mut far)).await {
                    Ok(ended) => break ended,
                    Err(_) => sleep(patience / 8).await,
                }
            }
        });
    }
}

/// Sends `len` bytes and the end while receiving the echo, which must be a prefix of the bytes
/// sent. Returns an error unless it is complete.
async fn echoed_in_order(len: usize) -> io::Result<usize> {
    let (mut receiving, mut sending) = TcpStream::connect("proxy:8").await?.into_split();
    let byte = |index: usize| (index * 7 + index / 251) as u8;
    let sent = spawn(async move {
        for start in (0..len).step_by(3001) {
            let end = len.min(start + 3001);
            sending.send((start..end).map(byte).collect::<Vec<_>>()).await?;
        }
        sending.shutdown().await
    });
    let mut came = 0;
    while let Some(lease) = receiving.recv().await? {
        assert!(
            lease.iter().copied().eq((came..came + lease.len()).map(byte)),
            "wrong bytes after {came}"
        );
        came += lease.len();
    }
    sent.await.expect("the task panicked")?;
    // A proxy that has lost its server ends the connection.
    if came < len { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(came) }
}

#[test]
fn a_disturbed_proxy_loses_reorders_and_repeats_nothing() {
    let (mut whole, mut failed) = (0, 0);
    for seed in 0..8 {
        let bound = 2048 << (seed % 4);
        let builder = Runtime::builder().unread_limit(bound).unsent_limit(bound);
        let network = Network::on(&Sim::builder(seed).build(), seed, builder);
        network.host("server", echo).unwrap();
        network.host("proxy", move || restless_proxy(seed)).unwrap();
        let pause = Duration::from_millis(1)..SECOND / 5;
        let kinds = &[Disturbance::Partition, Disturbance::Reset, Disturbance::Delay];
        network.disturb(Disturbances { kinds, pause, ..Disturbances::default() });
        let (totals, faults) = (Rc::new(Cell::new((0, 0))), network.clone());
        let counts = totals.clone();
        let client = async move {
            let slow = Link { latency: SECOND / 100, ..Link::default() };
            faults.link("proxy", "server", Some(slow))?;
            for len in [0, 1, 5000, 100_000] {
                let (all, none) = counts.get();
                counts.set(match timeout(20 * SECOND, echoed_in_order(len)).await {
                    Ok(Ok(_)) => (all + 1, none),
                    _ => (all, none + 1),
                });
            }
            faults.calm();
            sleep(SECOND).await;
            assert_eq!(echoed_in_order(50_000).await?, 50_000);
            io::Result::Ok(())
        };
        network.client("client", client).unwrap();
        network.run().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        (whole, failed) = (whole + totals.get().0, failed + totals.get().1);
    }
    assert!(whole > 10 && failed > 0, "{whole} whole, {failed} failed");
}

#[test]
fn the_first_seed_that_fails_is_found_with_its_replay() {
    let fails = |seed| if seed == 17 { Err("on purpose") } else { Ok(()) };
    let failed = find_failure(0..100, fails).expect("no seed failed");
    assert_eq!((failed.seed, &*failed.message), (17, "on purpose"));
    assert_eq!(find_failure(0..17, fails), None);
    let text = failed.to_string();
    let replay = "seed 17: on purpose\nreplay: ANNULUS_SIM_SEED=17 cargo test ";
    assert!(text.starts_with(replay), "{text}");
    let test = " network::the_first_seed_that_fails_is_found_with_its_replay";
    assert!(text.ends_with(&format!("{test} -- --exact --nocapture")), "{text}");
    let panics = find_failure([3], |_| -> Result<(), String> { panic!("as planned") });
    assert_eq!(panics.expect("the panic was not found").message, "as planned");
    if std::env::var_os("ANNULUS_SIM_SEED").is_none() {
        let checked = catch_unwind(|| check(0..100, fails)).expect_err("the sweep passed");
        assert_eq!(checked.downcast_ref(), Some(&text));
    }
}
