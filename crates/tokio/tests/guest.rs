//! Sockets, files, timers, tasks and signals of annulus and tokio work together on one thread.

mod common;

use annulus::net::{TcpListener, TcpStream, UnixStream};
use annulus_skip::skip;
use common::{echo, on_both};
use std::io;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::spawn_local;

#[test]
fn annulus_and_tokio_sockets_talk_to_each_other() {
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
fn streams_implement_tokios_traits() {
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
fn annulus_timers_files_and_tasks_work() {
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
        let blocking = annulus::task::spawn_blocking(|| 6 * 7).await.unwrap();
        assert_eq!(blocking, 42);
        Ok(())
    });
}

#[test]
fn a_wake_from_another_thread_arrives() {
    on_both(async || {
        let handle = annulus::handle()?;
        let spawned = std::thread::spawn(move || handle.spawn(async { 7 }).unwrap());
        // The spawned task runs only once its wake from the other thread ends tokio's wait.
        let task = tokio::task::spawn_blocking(move || spawned.join().unwrap()).await.unwrap();
        assert_eq!(task.await.unwrap(), 7);
        Ok(())
    });
}

#[test]
fn queued_bytes_are_sent_at_the_end() {
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
        // A task that never ends holds the stream.
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

/// Returns true if two threads can each have a CPU. Otherwise reports that the test is skipped.
fn has_two_cpus() -> bool {
    let cpus = annulus::shards::cpus().unwrap().len();
    if cpus < 2 {
        skip!("two threads need two CPUs");
    }
    cpus >= 2
}

#[test]
fn run_each_runs_one_loop_per_core() {
    if !has_two_cpus() {
        return;
    }
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
fn a_failed_thread_ends_the_rest() {
    if !has_two_cpus() {
        return;
    }
    let ran = std::panic::catch_unwind(|| {
        annulus_tokio::run_each(2, async |index| {
            assert_eq!(index, 0, "the second thread fails on purpose");
            std::future::pending::<()>().await;
        })
    });
    assert!(ran.is_err());
}

#[test]
fn signals_reach_both_runtimes() {
    use rustix::process::{Signal, getpid, kill_process};
    use tokio::signal::unix::{SignalKind, signal};
    on_both(async || {
        let mut tokios = signal(SignalKind::user_defined1())?;
        let mut ours = annulus::signal::signals(&[annulus::signal::Signal::SIGUSR2])?;
        for _ in 0..5 {
            kill_process(getpid(), Signal::USR1)?;
            tokios.recv().await.expect("the stream of signals ended");
            kill_process(getpid(), Signal::USR2)?;
            ours.recv().await?;
        }
        Ok(())
    });
}

#[test]
fn all_of_tokio_keeps_working() {
    on_both(async || {
        let directory = std::env::temp_dir();
        let name =
            format!("annulus-tokio-{}-{:?}", std::process::id(), std::thread::current().id());
        let path = directory.join(name);
        tokio::fs::write(&path, "written by tokio").await?;
        assert_eq!(annulus::fs::read_to_string(&path).await?, "written by tokio");
        tokio::fs::remove_file(&path).await?;
        assert_eq!(tokio::task::spawn_blocking(|| 6 * 7).await?, 42);
        let child = tokio::process::Command::new("echo").arg("hello").output().await?;
        assert_eq!(child.stdout, b"hello\n");
        let child = annulus::process::Command::new("echo").arg("hello").output().await?;
        assert_eq!(child.stdout, b"hello\n");
        let (one, other) = tokio::net::UnixDatagram::pair()?;
        one.send(b"datagram").await?;
        let mut received = [0; 8];
        other.recv(&mut received).await?;
        assert_eq!(&received, b"datagram");
        let mut ticks = tokio::time::interval(Duration::from_millis(1));
        let mut ours = annulus::time::interval(Duration::from_millis(1));
        for _ in 0..5 {
            ticks.tick().await;
            ours.tick().await;
        }
        Ok(())
    });
}

/// The program builds its own runtime, without a `LocalSet`.
#[test]
fn a_local_runtime_spawns_tasks_that_are_not_send() {
    let host =
        tokio::runtime::Builder::new_current_thread().enable_all().build_local(Default::default());
    let ran = host.unwrap().block_on(async {
        let _entered = annulus_tokio::enter()?;
        let (mut one, mut other) = UnixStream::pair()?;
        let task = spawn_local(async move {
            let lease = other.recv().await?.map(|lease| lease.to_vec());
            io::Result::Ok(lease)
        });
        one.send("hello").await?;
        assert_eq!(task.await?.unwrap().as_deref(), Some(&b"hello"[..]));
        io::Result::Ok(())
    });
    ran.unwrap();
}

/// Timers of annulus follow tokio's paused clock, which jumps to the next timer of either runtime.
/// The time limit of these tests uses the same clock.
#[test]
fn a_paused_clock_is_followed() {
    on_both(async || {
        tokio::time::pause();
        let (began, ours) = (tokio::time::Instant::now(), annulus::time::Instant::now());
        let slept = annulus::time::sleep(Duration::from_millis(100));
        tokio::time::timeout(Duration::from_secs(60), slept)
            .await
            .expect("the timer of annulus did not fire first");
        let late = annulus::time::timeout(
            Duration::from_secs(5),
            tokio::time::sleep(Duration::from_secs(60)),
        );
        assert!(late.await.is_err(), "the timer fired before its deadline");
        let passed = began.elapsed();
        assert!(passed >= Duration::from_millis(5100) && passed < Duration::from_millis(5200));
        assert!(ours.elapsed() >= Duration::from_millis(5100), "{:?}", ours.elapsed());

        let seconds = tokio::task::spawn_local(annulus::time::sleep(Duration::from_secs(10)));
        tokio::task::yield_now().await;
        tokio::time::advance(Duration::from_secs(10)).await;
        seconds.await?;
        tokio::time::resume();
        annulus::time::sleep(Duration::from_millis(1)).await;
        Ok(())
    });
}
