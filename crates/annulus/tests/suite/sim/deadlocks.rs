//! Deadlocks of a simulated host, and resources that run short and become available again.

use annulus::net::{TcpListener, TcpStream, UnixStream};
use annulus::sim::{Fault, Faults, Network, Sim, run, run_on};
use annulus::task::yield_now;
use annulus::time::{Instant, sleep};
use annulus::{DriverChoice, Runtime, counters, spawn};
use std::cell::Cell;
use std::future::pending;
use std::io;
use std::rc::Rc;
use std::time::Duration;

/// What a task does with each socket of the deadlock below, and how the line of the socket ends.
const SOCKETS: [(&str, &str); 3] = [
    ("accept", "7000, listening"),
    ("receive", ", connected to 127.0.0.1:7000"),
    ("receive", "7000, connected to 127.0.0.1:32768"),
];

#[test]
fn a_deadlock_report_lists_what_every_task_waits_for() {
    let error = run_on(&Sim::builder(1).build(), Runtime::builder(), async {
        let listener = TcpListener::bind("127.0.0.1:7000")?;
        let mut client = TcpStream::connect("127.0.0.1:7000").await?;
        let (mut server, _) = listener.accept().await?;
        spawn(async move { listener.accept().await.map(drop) });
        spawn(async move { client.recv().await.map(drop) });
        spawn(async move { server.recv().await.map(drop) });
        spawn(pending::<()>());
        pending::<io::Result<()>>().await
    })
    .unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::Deadlock);
    let text = error.to_string();
    assert!(text.starts_with("deadlock: every task waits"), "{text}");
    let lines = |what: &str| text.lines().filter(|line| line.contains(what)).count();
    assert_eq!(lines(file!()), 4, "not one line per task, with its source position: {text}");
    assert_eq!((lines("to accept"), lines("to receive")), (1, 2), "{text}");
    assert_eq!(lines("for a task or another thread"), 1, "{text}");
    assert_eq!(lines("the future of the run also waits"), 1, "{text}");
    // After the tasks, each socket with the descriptor that they wait for and its addresses.
    let sockets: Vec<_> = text.lines().skip(6).collect();
    assert_eq!(sockets.len(), 3, "{text}");
    for (socket, ends) in sockets.iter().zip(SOCKETS) {
        let (descriptor, socket) = socket.trim().split_once(": ").expect("no descriptor");
        assert!(lines(&format!("to {} on {descriptor}", ends.0)) == 1, "{text}");
        assert!(socket.starts_with("TCP socket 127.0.0.1:") && socket.ends_with(ends.1), "{text}");
    }
}

#[test]
fn a_pending_timer_is_not_a_deadlock() {
    let waited = run(7, async {
        let start = Instant::now();
        sleep(Duration::from_secs(3600)).await;
        io::Result::Ok(start.elapsed())
    });
    assert!(waited.unwrap() >= Duration::from_secs(3600));
}

#[test]
fn a_dropped_stream_gives_up_if_memory_stays_short() {
    let (sim, linger) = (Sim::builder(1).build(), Duration::from_millis(100));
    let ran = run_on(&sim, Runtime::builder().linger(linger), async {
        let listener = TcpListener::bind("127.0.0.1:7000")?;
        let mut client = TcpStream::connect("127.0.0.1:7000").await?;
        let (_server, _) = listener.accept().await?;
        let open = sim.open_descriptors();
        sim.set_faults(Faults::none().with(Fault::NoMemory, 1000));
        client.send("never sent").await?;
        drop(client);
        sleep(linger / 2).await;
        assert_eq!(sim.open_descriptors(), open, "the stream gave up before its linger ended");
        sleep(linger).await;
        assert_eq!(sim.open_descriptors(), open - 1);
        io::Result::Ok(())
    });
    ran.unwrap();
}

/// Runs clients that all connect at once and stay for some time. There are fewer of them than
/// descriptors, but each needs a second descriptor on the server. Returns the number of times that
/// the listener paused.
async fn connect_all(clients: u32) -> io::Result<u64> {
    let listener = TcpListener::bind("127.0.0.1:7000")?;
    let answered = Rc::new(Cell::new(0));
    let count = answered.clone();
    spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await?;
            let count = count.clone();
            spawn(async move {
                stream.send("welcome").await?;
                count.set(count.get() + 1);
                // Waits until the client leaves.
                stream.recv().await
            });
        }
        #[expect(unreachable_code, reason = "the type of the task")]
        io::Result::Ok(())
    });
    let tasks: Vec<_> = (0..clients).map(|_| spawn(connect_and_stay())).collect();
    for task in tasks {
        task.await.expect("the task panicked")?;
    }
    assert_eq!(answered.get(), clients);
    Ok(counters().unwrap_or_default().accept_pauses)
}

/// Stays for a second, so that many clients are connected at once.
async fn connect_and_stay() -> io::Result<()> {
    let mut stream = loop {
        match TcpStream::connect("127.0.0.1:7000").await {
            Ok(stream) => break stream,
            Err(_) => sleep(Duration::from_millis(100)).await,
        }
    };
    let greeting = stream.recv().await?;
    assert_eq!(greeting.as_deref(), Some(&b"welcome"[..]));
    sleep(Duration::from_secs(1)).await;
    Ok(())
}

#[test]
fn a_listener_without_descriptors_recovers_by_itself() {
    for seed in 0..20 {
        let sim = Sim::builder(seed).descriptors(30).build();
        let pauses = run_on(&sim, Runtime::builder(), connect_all(20)).unwrap();
        assert!(pauses > 0, "seed {seed}: no listener ran out of descriptors");
        assert_eq!(sim.leftovers(), [""; 0], "seed {seed}");
    }
}

#[test]
fn a_listener_with_failing_accepts_serves_every_client() {
    let often = Faults::none().with(Fault::AcceptLimit, 500);
    for seed in 0..20 {
        let sim = Sim::builder(seed).faults(often.clone()).build();
        let pauses = run_on(&sim, Runtime::builder(), connect_all(20)).unwrap();
        assert!(pauses > 0, "seed {seed}: no accept failed");
    }
}

async fn spins() -> io::Result<()> {
    spawn(pending::<()>());
    loop {
        yield_now().await;
    }
}

/// Without a limit, such a run would continue for hours, or forever.
#[test]
fn tasks_that_only_yield_are_reported() {
    for choice in [DriverChoice::Uring, DriverChoice::Epoll] {
        let sim = Sim::builder(1).max_idle_turns(100).build();
        let builder = Runtime::builder().driver(choice);
        let alone = run_on(&sim, builder.clone(), async {
            spawn(spins());
            pending::<io::Result<()>>().await
        });
        let sim = Sim::builder(1).max_idle_turns(100).build();
        let network = Network::on(&sim, 1, builder);
        network.client("spins", spins()).unwrap();
        for error in [alone.unwrap_err(), network.run().unwrap_err()] {
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            let text = error.to_string();
            assert!(text.starts_with("the tasks only wake themselves"), "{text}");
            assert!(text.contains("waits to run") && text.contains(file!()), "{text}");
        }
    }
}

#[test]
fn a_spinning_task_that_waits_for_another_one_is_no_failure() {
    let sim = Sim::builder(1).max_idle_turns(100).build();
    let ran = run_on(&sim, Runtime::builder().event_interval(1), async {
        let (mut one, mut other) = UnixStream::pair()?;
        let done = Rc::new(Cell::new(false));
        let note = done.clone();
        spawn(async move {
            for _ in 0..10 {
                sleep(Duration::from_micros(50)).await;
                one.send("still here").await?;
            }
            note.set(true);
            io::Result::Ok(())
        });
        spawn(async move {
            while other.recv().await?.is_some() {}
            io::Result::Ok(())
        });
        while !done.get() {
            yield_now().await;
        }
        io::Result::Ok(())
    });
    ran.unwrap();
}
