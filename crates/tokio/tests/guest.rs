//! annulus inside tokio.

use annulus::net::{TcpListener, TcpStream, UdpSocket, UnixStream};
use annulus::{Builder, DriverChoice, Runtime};
use std::io;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::{LocalSet, spawn_local};
use tokio::time::timeout;

/// A deadline that turns a hang into a failure.
const LONG: Duration = Duration::from_secs(60);

/// Runs a body on both drivers, in a current-thread runtime of tokio.
fn on_both<F: Future<Output = io::Result<()>>>(body: impl Fn() -> F) {
    for driver in [DriverChoice::Auto, DriverChoice::Epoll] {
        on(Runtime::builder().driver(driver), body());
    }
}

fn on(builder: Builder, body: impl Future<Output = io::Result<()>>) {
    let host = host();
    let local = LocalSet::new();
    let body = async {
        let entered = annulus_tokio::enter_with(builder)?;
        timeout(LONG, body).await.expect("a hang")?;
        drop(entered);
        io::Result::Ok(())
    };
    host.block_on(local.run_until(body)).unwrap();
}

fn host() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

async fn echo(mut stream: TcpStream) -> io::Result<()> {
    while let Some(lease) = stream.recv().await? {
        stream.send(lease).await?;
    }
    Ok(())
}

#[test]
fn sockets_of_both_talk_to_each_other() {
    on_both(async || {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        spawn_local(async move {
            while let Ok((stream, _)) = listener.accept().await {
                spawn_local(echo(stream));
            }
        });
        let clients = (0..20).map(|index: u8| {
            tokio::spawn(async move {
                let mut stream = tokio::net::TcpStream::connect(address).await?;
                for round in 0..50 {
                    let sent = [index ^ round; 300];
                    stream.write_all(&sent).await?;
                    let mut received = [0; 300];
                    stream.read_exact(&mut received).await?;
                    assert_eq!(sent, received);
                }
                io::Result::Ok(())
            })
        });
        for client in clients.collect::<Vec<_>>() {
            client.await.unwrap()?;
        }
        Ok(())
    });
}

#[test]
fn its_streams_have_the_traits_of_tokio() {
    on_both(async || {
        let (mut one, other) = UnixStream::pair()?;
        let copied = spawn_local(async move {
            let (mut receiving, mut sending) = tokio::io::split(other);
            let copied = tokio::io::copy(&mut receiving, &mut sending).await?;
            sending.shutdown().await?;
            io::Result::Ok(copied)
        });
        let sent = vec![7; 1_000_000];
        let mut received = Vec::new();
        let (mut receiving, mut sending) = tokio::io::split(&mut one);
        let (read, wrote) = tokio::join!(receiving.read_to_end(&mut received), async {
            sending.write_all(&sent).await?;
            sending.shutdown().await
        });
        wrote?;
        assert_eq!((read?, received), (sent.len(), sent));
        assert_eq!(copied.await.unwrap()?, 1_000_000);
        Ok(())
    });
}

#[test]
fn timers_files_and_tasks_of_annulus_work() {
    on_both(async || {
        let path = std::env::temp_dir().join(format!("annulus-tokio-{}", std::process::id()));
        annulus::fs::write(&path, "from a file").await?;
        let read = annulus::spawn({
            let path = path.clone();
            async move { annulus::fs::read_to_string(path).await }
        });
        let start = annulus::time::Instant::now();
        annulus::time::sleep(Duration::from_millis(20)).await;
        assert!(start.elapsed() >= Duration::from_millis(20));
        assert_eq!(read.await.unwrap()?, "from a file");
        annulus::fs::remove_file(path).await?;
        let blocking = annulus::spawn_blocking(|| 6 * 7).await.unwrap();
        assert_eq!(blocking, 42);
        Ok(())
    });
}

#[test]
fn datagrams_arrive_while_tokio_is_busy() {
    on_both(async || {
        let server = UdpSocket::bind("127.0.0.1:0")?;
        let address = server.local_addr()?;
        // Always ready: tokio never waits, and so never sleeps in its own poll.
        let busy = spawn_local(async {
            loop {
                tokio::task::yield_now().await;
            }
        });
        let client = UdpSocket::bind("127.0.0.1:0")?;
        for round in 0..100_u32 {
            client.send_to(round.to_le_bytes().to_vec(), address).await?;
            let (lease, _) = server.recv_from().await?;
            assert_eq!(*lease, round.to_le_bytes());
        }
        busy.abort();
        Ok(())
    });
}

#[test]
fn a_wake_by_another_thread_arrives() {
    on_both(async || {
        let handle = annulus::handle()?;
        let spawned = std::thread::spawn(move || handle.spawn(async { 7 }).unwrap());
        // Not before tokio waits: nothing else is there to do.
        let task = tokio::task::spawn_blocking(move || spawned.join().unwrap()).await.unwrap();
        assert_eq!(task.await.unwrap(), 7);
        Ok(())
    });
}

#[test]
fn there_is_one_on_a_thread_and_a_next_one_after_it() {
    host().block_on(async {
        let entered = annulus_tokio::enter().unwrap();
        let second = annulus_tokio::enter().unwrap_err().to_string();
        assert!(second.contains("running on this thread already"), "{second}");
        drop(entered);
        drop(annulus_tokio::enter().unwrap());
    });
}

#[test]
fn it_is_refused_where_it_cannot_work() {
    let outside = annulus_tokio::enter().unwrap_err().to_string();
    assert!(outside.contains("reactor") || outside.contains("runtime"), "{outside}");
    let many = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let refused = many.unwrap().block_on(async { annulus_tokio::enter().unwrap_err() });
    assert_eq!(refused.kind(), io::ErrorKind::Unsupported);
    for count in [0, 100_000] {
        let refused = annulus_tokio::run_each(count, async |_| ()).unwrap_err().to_string();
        assert!(refused.starts_with(&format!("{count} threads: take 1 to ")), "{refused}");
    }
}

#[test]
fn tokio_may_end_first() {
    let host = host();
    let entered = {
        let _context = host.enter();
        annulus_tokio::enter().unwrap()
    };
    host.block_on(async { annulus::time::sleep(Duration::from_millis(1)).await });
    drop(host);
    drop(entered);
    Runtime::new().unwrap().block_on(async {});
}

#[test]
fn it_may_end_in_a_task_of_its_own() {
    host().block_on(LocalSet::new().run_until(async {
        let entered = annulus_tokio::enter().unwrap();
        let ended = Rc::new(tokio::sync::Notify::new());
        let notify = ended.clone();
        _ = annulus::spawn(async move {
            drop(entered);
            notify.notify_one();
        });
        timeout(LONG, ended.notified()).await.expect("the task runs");
        tokio::task::yield_now().await;
        assert!(annulus::handle().is_err());
    }));
}

#[test]
fn what_was_queued_is_sent_at_the_end() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let reader = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut received = Vec::new();
        io::Read::read_to_end(&mut stream, &mut received).unwrap();
        received
    });
    let ran = annulus_tokio::run(async {
        let mut stream = TcpStream::connect(address).await?;
        // It is held by a task that never ends.
        stream.send(vec![3; 200_000]).await?;
        spawn_local(async move {
            std::future::pending::<()>().await;
            drop(stream);
        });
        io::Result::Ok(())
    });
    ran.unwrap().unwrap();
    assert_eq!(reader.join().unwrap(), vec![3; 200_000]);
}

#[test]
fn a_stop_is_reported() {
    let stopped = annulus_tokio::run(async {
        annulus::handle().unwrap().stop();
        std::future::pending::<()>().await;
    });
    assert_eq!(stopped.unwrap_err().kind(), io::ErrorKind::Interrupted);
}

#[test]
fn each_core_has_its_own() {
    let threads = annulus_tokio::run_each(2, async |index| {
        let (mut one, mut other) = UnixStream::pair().unwrap();
        one.send(vec![index as u8]).await.unwrap();
        (other.recv().await.unwrap().unwrap()[0], std::thread::current().id())
    });
    let threads = threads.unwrap();
    assert_eq!((threads[0].0, threads[1].0), (0, 1));
    assert_ne!(threads[0].1, threads[1].1);
}

#[test]
fn a_thread_that_fails_ends_the_others() {
    let ran = std::panic::catch_unwind(|| {
        annulus_tokio::run_each(2, async |index| {
            assert_eq!(index, 0, "the second one fails");
            std::future::pending::<()>().await;
        })
    });
    assert!(ran.is_err());
}

#[test]
fn a_loop_over_what_is_always_ready_lets_the_others_run() {
    on_both(async || {
        let semaphore = annulus::sync::Semaphore::new(1);
        let greedy = spawn_local(async move {
            loop {
                drop(semaphore.acquire().await.unwrap());
            }
        });
        // Needs turns of annulus and polls of tokio.
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
fn entering_on_a_thread_that_runs_no_tasks_is_an_error_to_be_seen() {
    host().block_on(async {
        let failed = tokio::task::spawn_blocking(|| {
            let mut entered = annulus_tokio::enter().unwrap();
            tokio::runtime::Handle::current().block_on(entered.failed()).to_string()
        });
        let failed = timeout(LONG, failed).await.expect("a hang").unwrap();
        assert!(failed.contains("another thread"), "{failed}");
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
