//! tokio and annulus do not starve each other, an idle thread sleeps, and a request costs the
//! documented number of system calls.

mod common;

use annulus::net::{TcpListener, UdpSocket, UnixStream};
use annulus::{DriverChoice, DriverKind, Runtime};
use annulus_skip::skip;
use common::{LONG, echo, on_both};
use std::cell::Cell;
use std::future::poll_fn;
use std::io::{self, Read, Write};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::spawn_local;
use tokio::time::timeout;

const ROUNDS: u32 = 100;

/// Sends datagrams from one socket to another, each after the previous one has arrived.
async fn send_datagrams() -> io::Result<()> {
    let server = UdpSocket::bind("127.0.0.1:0")?;
    let address = server.local_addr()?;
    let client = UdpSocket::bind("127.0.0.1:0")?;
    for round in 0..ROUNDS {
        client.send_to(round.to_le_bytes().to_vec(), address).await?;
        let (lease, _) = server.recv_from().await?;
        assert_eq!(*lease, round.to_le_bytes());
    }
    Ok(())
}

#[test]
fn datagrams_arrive_while_a_tokio_task_yields_forever() {
    on_both(async || {
        // This task is always ready, so tokio never waits for events.
        let busy = spawn_local(async {
            loop {
                tokio::task::yield_now().await;
            }
        });
        send_datagrams().await?;
        busy.abort();
        Ok(())
    });
}

#[test]
fn datagrams_arrive_while_tokios_queue_is_never_empty() {
    on_both(async || {
        let polls = Rc::new(Cell::new(0_u64));
        let counted = polls.clone();
        let busy = spawn_local(poll_fn(move |cx| {
            counted.set(counted.get() + 1);
            cx.waker().wake_by_ref();
            Poll::<()>::Pending
        }));
        send_datagrams().await?;
        busy.abort();
        let each = polls.get() / u64::from(ROUNDS);
        // tokio looks for events after 61 polls; a datagram needs a few turns.
        assert!(each < 1000, "{each} polls of the busy task per datagram");
        Ok(())
    });
}

#[test]
fn tokio_sockets_and_timers_progress_while_an_annulus_task_is_always_ready() {
    on_both(async || {
        let polls = Rc::new(Cell::new(0_u64));
        let counted = polls.clone();
        let busy = annulus::spawn(async move {
            loop {
                annulus::task::yield_now().await;
                counted.set(counted.get() + 1);
            }
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let mut client = tokio::net::TcpStream::connect(listener.local_addr()?).await?;
        let (mut server, _) = listener.accept().await?;
        for round in 0..ROUNDS {
            client.write_u32(round).await?;
            assert_eq!(server.read_u32().await?, round);
        }
        let each = polls.get() / u64::from(ROUNDS);
        assert!(each < 1000, "{each} polls of the busy task per message");
        tokio::time::sleep(Duration::from_millis(2)).await;
        busy.abort();
        Ok(())
    });
}

#[test]
fn a_loop_over_ready_operations_lets_other_tasks_run() {
    on_both(async || {
        let semaphore = tokio::sync::Semaphore::new(1);
        let greedy = spawn_local(async move {
            loop {
                drop(semaphore.acquire().await.unwrap());
            }
        });
        // Each round needs both annulus turns and polls of tokio tasks.
        let (mut one, mut other) = UnixStream::pair()?;
        for _ in 0..10 {
            one.send("x").await?;
            assert_eq!(&*other.recv().await?.unwrap(), b"x");
            tokio::task::yield_now().await;
        }
        greedy.abort();
        Ok(())
    });
}

#[test]
fn a_short_timer_does_not_keep_the_thread_busy() {
    on_both(async || {
        let before = annulus::counters().unwrap().enters;
        for _ in 0..20 {
            annulus::time::sleep(Duration::from_micros(300)).await;
        }
        let turns = annulus::counters().unwrap().enters - before;
        assert!(turns < 200, "{turns} turns for 20 timers");
        Ok(())
    });
}

/// Waits for a period of 300 ms in which the thread parks and takes turns only a few times.
async fn until_idle(parks: &AtomicU32) {
    let counts = || (parks.load(Ordering::Relaxed), enters());
    loop {
        let before = counts();
        tokio::time::sleep(Duration::from_millis(300)).await;
        let after = counts();
        if after.0 - before.0 <= 5 && after.1 - before.1 <= 5 {
            return;
        }
    }
}

/// While only a receive, an accept and a timer are pending, the thread parks instead of polling.
#[test]
fn an_idle_thread_sleeps() {
    for driver in [DriverChoice::Auto, DriverChoice::Epoll] {
        let parks = Arc::new(AtomicU32::new(0));
        let counted = parks.clone();
        let mut host = tokio::runtime::Builder::new_current_thread();
        host.enable_all().on_thread_park(move || _ = counted.fetch_add(1, Ordering::Relaxed));
        let idle = async {
            let _entered = annulus_tokio::enter_with(Runtime::builder().driver(driver))?;
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let _client = annulus::net::TcpStream::connect(listener.local_addr()?).await?;
            let (stream, _) = listener.accept().await?;
            annulus::spawn(echo(stream));
            annulus::spawn(async move { listener.accept().await.map(drop) });
            annulus::spawn(annulus::time::sleep(Duration::from_secs(3600)));
            timeout(LONG, until_idle(&parks)).await.expect("the thread never sleeps");
            io::Result::Ok(())
        };
        host.build().unwrap().block_on(idle).unwrap();
    }
}

/// Runs a body if io_uring works here: the expected numbers of system calls hold only for it.
fn on_uring(body: impl Future<Output = io::Result<()>>) {
    let is_uring = Runtime::new().unwrap().driver().kind == DriverKind::Uring;
    if !is_uring {
        return skip!("io_uring does not work here");
    }
    let within = async { timeout(LONG, body).await.expect("the test hangs") };
    annulus_tokio::run(within).unwrap().unwrap();
}

fn enters() -> u64 {
    annulus::counters().unwrap().enters
}

/// One turn receives the request, and one sends the answer.
#[test]
fn a_request_on_a_single_connection_takes_two_annulus_system_calls() {
    on_uring(async {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let client = std::thread::spawn(move || {
            let mut stream = std::net::TcpStream::connect(address)?;
            let mut received = [0; 100];
            for round in 0..200 {
                stream.write_all(&[round; 100])?;
                stream.read_exact(&mut received)?;
                assert_eq!(received, [round; 100]);
            }
            io::Result::Ok(())
        });
        let (stream, _) = listener.accept().await?;
        let before = enters();
        spawn_local(echo(stream)).await??;
        let calls = enters() - before;
        assert!(calls <= 2 * 200 + 20, "{calls} system calls for 200 requests");
        client.join().unwrap()
    });
}

#[test]
fn tasks_that_wake_each_other_make_no_system_calls() {
    on_uring(async {
        let before = enters();
        let tasks: Vec<_> = (0..10)
            .map(|_| {
                annulus::spawn(async {
                    for _ in 0..100 {
                        annulus::task::yield_now().await;
                        tokio::task::yield_now().await;
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await?;
        }
        let calls = enters() - before;
        assert!(calls < 20, "{calls} system calls for 1,000 wakes");
        Ok(())
    });
}
