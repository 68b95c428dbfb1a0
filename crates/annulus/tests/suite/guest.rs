//! A runtime as the guest of another event loop: what the conformance tests do not cover.

use crate::common;

use annulus::net::{TcpListener, TcpStream};
use annulus::time::{Instant, sleep};
use annulus::{DriverChoice, Guest, GuestNext, Runtime};
use common::host::Host;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};
use std::time::Duration;

const BOTH: [DriverChoice; 2] = [DriverChoice::Auto, DriverChoice::Epoll];

fn guest(driver: DriverChoice) -> Guest {
    Runtime::builder().driver(driver).build().unwrap().into_guest().unwrap()
}

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Takes turns until nothing is left to do. Returns the timeout of the last turn.
fn settle(guest: &mut Guest, waker: &Waker) -> Option<Duration> {
    for _ in 0..100 {
        if let GuestNext::Wait(timeout) = guest.turn(waker).unwrap() {
            return timeout;
        }
    }
    panic!("there is always something to do");
}

#[test]
fn tasks_of_guest_and_host_run_together() {
    for driver in BOTH {
        let mut guest = guest(driver);
        let host = Host::of(&guest);
        let answer = host.run(&mut guest, async {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let mut client = TcpStream::connect(listener.local_addr()?).await?;
            let server = annulus::spawn(async move {
                let (mut stream, _) = listener.accept().await?;
                sleep(Duration::from_millis(2)).await;
                stream.send("from a task").await?;
                stream.drain().await
            });
            let lease = client.recv().await?.expect("the stream ended too early");
            server.await.unwrap()?;
            io::Result::Ok(lease.to_vec())
        });
        assert_eq!(answer.unwrap().unwrap(), b"from a task");
    }
}

#[test]
fn a_wake_by_another_thread_ends_the_wait() {
    for driver in BOTH {
        let mut guest = guest(driver);
        let (host, handle) = (Host::of(&guest), guest.runtime().handle());
        let (sender, receiver) = std::sync::mpsc::channel();
        let other = std::thread::spawn(move || {
            // Waits until the host polls the future below.
            receiver.recv().unwrap();
            handle.spawn(async { std::thread::current().id() }).unwrap()
        });
        let here = std::thread::current().id();
        let spawned = host.run(&mut guest, async {
            sender.send(()).unwrap();
            // Without the wake, this timer would end the test late but not fail it.
            while !other.is_finished() {
                sleep(Duration::from_millis(1)).await;
            }
            other.join().unwrap().await.unwrap()
        });
        assert_eq!(spawned.unwrap(), here);
    }
}

#[test]
fn a_remote_wake_makes_the_descriptor_readable() {
    for driver in BOTH {
        let mut guest = guest(driver);
        let handle = guest.runtime().handle();
        assert_eq!(settle(&mut guest, Waker::noop()), None);
        guest.clear();
        assert!(
            !is_readable(&guest),
            "{driver:?}: the descriptor is readable although nothing has happened"
        );
        std::thread::spawn(move || handle.wake()).join().unwrap();
        assert!(is_readable(&guest), "{driver:?}");
        settle(&mut guest, Waker::noop());
        guest.clear();
        assert!(!is_readable(&guest), "{driver:?}: the descriptor is readable after the turn");
    }
}

fn is_readable(guest: &Guest) -> bool {
    let none = rustix::event::Timespec::default();
    let mut polled = [rustix::event::PollFd::new(guest, rustix::event::PollFlags::IN)];
    rustix::event::poll(&mut polled, Some(&none)).unwrap() == 1
}

#[test]
fn the_host_is_woken_once_for_work_between_turns() {
    for driver in BOTH {
        let mut guest = guest(driver);
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(wakes.clone());
        let woken = || wakes.0.load(Ordering::Relaxed);
        settle(&mut guest, &waker);
        assert_eq!(woken(), 0, "{driver:?}: the host was woken although nothing was used");
        annulus::spawn(async {});
        annulus::spawn(async {});
        assert_eq!(woken(), 1, "{driver:?}");
        settle(&mut guest, &waker);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        drop(listener);
        assert_eq!(woken(), 2, "{driver:?}: the host was not woken for the close");
        settle(&mut guest, &waker);
    }
}

#[test]
fn the_wait_ends_with_the_next_timer() {
    for driver in BOTH {
        let mut guest = guest(driver);
        assert_eq!(settle(&mut guest, Waker::noop()), None);
        let task = annulus::spawn(sleep(Duration::from_secs(100)));
        let timeout = settle(&mut guest, Waker::noop()).expect("the wait has no time limit");
        assert!(timeout > Duration::from_secs(50) && timeout <= Duration::from_secs(100));
        task.abort();
        assert_eq!(settle(&mut guest, Waker::noop()), None);
    }
}

#[test]
fn a_thread_has_one_runtime() {
    let guest = guest(DriverChoice::Auto);
    let second = Runtime::new().unwrap().into_guest().unwrap_err().to_string();
    assert!(second.contains("running on this thread already"), "{second}");
    let nested = Runtime::new().unwrap().try_block_on(async {}).unwrap_err().to_string();
    assert!(nested.contains("running on this thread already"), "{nested}");
    drop(guest);
    // No runtime exists from now on.
    assert!(annulus::handle().is_err());
    Runtime::new().unwrap().block_on(async {});
}

#[test]
fn queued_bytes_are_sent_when_the_guest_is_dropped() {
    for driver in BOTH {
        let mut guest = guest(driver);
        let host = Host::of(&guest);
        let (mut stream, peer) =
            host.run(&mut guest, common::half_pair()).unwrap().expect("no connection");
        host.run(&mut guest, stream.send(vec![7; 100_000])).unwrap().unwrap();
        let reader = std::thread::spawn(move || {
            let mut received = Vec::new();
            io::Read::read_to_end(&mut &peer, &mut received).map(|_| received)
        });
        drop(stream);
        drop(guest);
        assert_eq!(reader.join().unwrap().unwrap(), vec![7; 100_000]);
    }
}

#[test]
fn a_stop_is_an_error_of_the_turn() {
    let mut guest = guest(DriverChoice::Auto);
    guest.runtime().handle().stop();
    let stopped = guest.turn(Waker::noop()).unwrap_err();
    assert_eq!(stopped.kind(), io::ErrorKind::Interrupted);
    settle(&mut guest, Waker::noop());
}

#[test]
fn a_simulated_kernel_has_no_guests() {
    let sim = annulus::sim::Sim::builder(1).build();
    let runtime = Runtime::builder().driver(DriverChoice::Uring).kernel(sim).build().unwrap();
    assert_eq!(runtime.into_guest().unwrap_err().kind(), io::ErrorKind::Unsupported);
}

#[test]
fn an_idle_guest_needs_no_turns() {
    for driver in BOTH {
        let mut guest = guest(driver);
        let host = Host::of(&guest);
        let before = host
            .run(&mut guest, async {
                let listener = TcpListener::bind("127.0.0.1:0")?;
                let client = TcpStream::connect(listener.local_addr()?).await?;
                let accepted = listener.accept().await?;
                let before = annulus::counters().unwrap().enters;
                let start = Instant::now();
                sleep(Duration::from_millis(30)).await;
                let turns = annulus::counters().unwrap().enters - before;
                assert!(start.elapsed() >= Duration::from_millis(30));
                drop((client, accepted));
                io::Result::Ok(turns)
            })
            .unwrap()
            .unwrap();
        assert!(before <= 6, "{driver:?}: {before} turns in an idle wait");
    }
}

#[test]
fn measuring_records_how_long_woken_tasks_wait() {
    for driver in BOTH {
        let builder = Runtime::builder().driver(driver).measure(true);
        let mut guest = builder.build().unwrap().into_guest().unwrap();
        let host = Host::of(&guest);
        host.run(&mut guest, async {
            let task = annulus::spawn(async {
                for _ in 0..1000 {
                    annulus::task::yield_now().await;
                }
            });
            task.await.unwrap();
        })
        .unwrap();
        let timings = guest.runtime().stats().unwrap().timings.unwrap();
        let counts = [&timings.turn, &timings.poll, &timings.wake_to_poll].map(|h| h.count());
        assert!(counts.iter().all(|count| *count > 0), "{driver:?}: {counts:?}");
    }
}
