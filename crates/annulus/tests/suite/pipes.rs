//! Pipes, on both drivers.

use crate::common;
use annulus_skip::skip;

use annulus::pipe::{OpenOptions, Receiver, Sender, pipe};
use annulus::sim::Sim;
use annulus::task::yield_now;
use annulus::time::timeout;
use annulus::{Builder, DriverChoice, Runtime, spawn};
use common::rerun::{self, rerun};
use common::{open_descriptors, pattern, run_on, touch};
use std::future::Future;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Tests run one at a time, since one of them counts descriptors.
fn alone() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns a builder for each driver that works on this machine.
fn builders() -> Vec<Builder> {
    let epoll = Runtime::builder().driver(DriverChoice::Epoll);
    if annulus_ring::Features::detect().is_err() {
        skip!("io_uring is blocked here");
        return vec![epoll];
    }
    vec![epoll, Runtime::builder().driver(DriverChoice::Uring)]
}

/// Runs a body on each driver; a deadline turns a hang into a failure.
fn on_each<F: Future<Output = io::Result<()>>>(body: fn() -> F) {
    on_each_with(|builder| builder, body);
}

fn on_each_with<F: Future<Output = io::Result<()>>>(
    settings: fn(Builder) -> Builder,
    body: fn() -> F,
) {
    let _alone = alone();
    for builder in builders() {
        run_on(settings(builder), async {
            timeout(Duration::from_secs(60), body()).await.expect("the test hangs")
        });
    }
}

async fn receive_all(receiver: &mut Receiver) -> io::Result<Vec<u8>> {
    let mut got = Vec::new();
    while let Some(lease) = receiver.recv().await? {
        got.extend_from_slice(&lease);
    }
    Ok(got)
}

#[test]
fn four_mebibytes_pass_a_pipe_in_order() {
    on_each(|| async {
        let (mut sender, mut receiver) = pipe()?;
        let text = pattern(4 << 20);
        let sent = text.clone();
        let writer = spawn(async move {
            // Chunks of many sizes, some larger than the pipe and than one write takes.
            let mut rest = &sent[..];
            for size in (1..).map(|n| n * n % 150_000 + 1) {
                let Some((chunk, after)) = rest.split_at_checked(size) else { break };
                sender.send(chunk.to_vec()).await?;
                rest = after;
            }
            sender.write_all(rest).await
        });
        assert!(receive_all(&mut receiver).await? == text);
        writer.await.expect("the task panicked")
    });
}

#[test]
fn more_chunks_than_one_write_takes_leave_in_one_turn() {
    on_each(|| async {
        let (mut sender, mut receiver) = pipe()?;
        for n in 0..200u8 {
            sender.send(vec![n; 100]).await?;
        }
        drop(sender);
        let got = receive_all(&mut receiver).await?;
        assert!(got.chunks(100).enumerate().all(|(n, chunk)| chunk == vec![n as u8; 100]));
        assert_eq!(got.len(), 20_000);
        Ok(())
    });
}

#[test]
fn a_slow_reader_blocks_the_writer() {
    let small = |builder: Builder| builder.unsent_limit(4096);
    on_each_with(small, || async {
        let (mut sender, mut receiver) = pipe()?;
        let mut accepted = 0;
        while touch(sender.send(vec![7; 4096])).is_some() {
            accepted += 4096;
            yield_now().await;
        }
        assert!(accepted <= (64 << 10) + 4 * 4096, "{accepted} bytes were accepted");
        drop(sender);
        assert_eq!(receive_all(&mut receiver).await?.len(), accepted + 4096);
        Ok(())
    });
}

#[test]
fn dropped_receives_lose_no_byte() {
    on_each(|| async {
        let (mut sender, mut receiver) = pipe()?;
        let text = pattern(200_000);
        let sent = text.clone();
        let writer = spawn(async move {
            for piece in sent.chunks(777) {
                sender.send(piece.to_vec()).await?;
                yield_now().await;
            }
            io::Result::Ok(())
        });
        let mut got = Vec::new();
        while got.len() < text.len() {
            if let Some(lease) = touch(receiver.recv()) {
                got.extend_from_slice(&lease?.expect("the stream ended too early"));
            }
            yield_now().await;
        }
        assert!(got == text);
        writer.await.expect("the task panicked")
    });
}

#[test]
fn a_shutdown_and_a_drop_end_the_pipe() {
    on_each(|| async {
        let (mut sender, mut receiver) = pipe()?;
        sender.send("all").await?;
        sender.shutdown().await?;
        assert_eq!(receive_all(&mut receiver).await?, b"all");
        assert!(receiver.recv().await?.is_none(), "a receive after the end returned bytes");
        let refused = sender.send("more").await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::BrokenPipe);
        let (sender, mut receiver) = pipe()?;
        let reader = spawn(async move { receiver.recv().await.map(|lease| lease.is_none()) });
        yield_now().await;
        drop(sender);
        assert!(reader.await.expect("the task panicked")?);
        Ok(())
    });
}

#[test]
fn a_pipe_without_a_reader_is_broken() {
    on_each(|| async {
        let (mut sender, receiver) = pipe()?;
        // The pipe is full, and the send waits.
        let full = spawn(async move {
            sender.send(vec![1; 1 << 20]).await?;
            sender.drain().await
        });
        yield_now().await;
        drop(receiver);
        assert_eq!(
            full.await.expect("the task panicked").unwrap_err().kind(),
            ErrorKind::BrokenPipe
        );
        Ok(())
    });
}

#[test]
fn pipe_ends_of_other_code_are_adopted() {
    on_each(|| async {
        let (mut foreign, writing) = io::pipe()?;
        let mut sender = Sender::try_from(writing)?;
        sender.send("to a blocking reader").await?;
        drop(sender);
        let reader = std::thread::spawn(move || {
            let mut text = String::new();
            foreign.read_to_string(&mut text).map(|_| text)
        });
        while !reader.is_finished() {
            yield_now().await;
        }
        assert_eq!(reader.join().expect("the thread panicked")?, "to a blocking reader");
        let (reading, mut foreign) = io::pipe()?;
        let mut receiver = Receiver::try_from(reading)?;
        foreign.write_all(b"from a blocking writer")?;
        drop(foreign);
        assert_eq!(receive_all(&mut receiver).await?, b"from a blocking writer");
        Ok(())
    });
}

#[test]
fn descriptors_other_than_pipe_ends_are_refused() {
    on_each(|| async {
        let file: OwnedFd = std::fs::File::open("/dev/null")?.into();
        let error = Receiver::try_from(file).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("is not a pipe"), "{error}");
        let (reading, writing) = io::pipe()?;
        let error = Sender::try_from(OwnedFd::from(reading)).unwrap_err();
        assert!(error.to_string().contains("not open for writing"), "{error}");
        let error = Receiver::try_from(OwnedFd::from(writing)).unwrap_err();
        assert!(error.to_string().contains("not open for reading"), "{error}");
        Ok(())
    });
}

/// A named pipe that is removed when it is dropped.
struct Named(PathBuf);

impl Named {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("annulus-{name}-{}", std::process::id()));
        _ = std::fs::remove_file(&path);
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.expect("mkfifo does not start").success());
        Self(path)
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn bytes_are_shown_in_place_and_read_in_pieces() {
    on_each(|| async {
        let (mut sender, mut receiver) = pipe()?;
        assert_eq!(receiver.try_recv().unwrap_err().kind(), ErrorKind::WouldBlock);
        sender.send("head").await?;
        assert_eq!(receiver.fill_at_least(4).await?, b"head");
        sender.send("and body").await?;
        assert!(receiver.fill_at_least(8).await?.starts_with(b"headand "));
        receiver.consume(4);
        assert_eq!(&*receiver.recv_exact(8).await?, b"and body");
        Ok(())
    });
}

#[test]
fn named_pipes_are_opened_without_waiting() {
    on_each(|| async {
        let named = Named::new("named-pipe");
        let error = OpenOptions::new().open_sender(&named.0).unwrap_err();
        assert_eq!(annulus::io::raw_os_error(&error), Some(libc::ENXIO));
        let text = error.to_string();
        assert!(text.contains("named-pipe") && text.contains("os error 6"), "{text}");
        assert!(text.contains("no process has opened it for reading"), "{text}");
        let mut receiver = OpenOptions::new().open_receiver(&named.0)?;
        // No writer has opened the pipe yet, which is not the end.
        for _ in 0..10 {
            assert!(touch(receiver.recv()).is_none());
            yield_now().await;
        }
        let mut sender = OpenOptions::new().open_sender(&named.0)?;
        sender.send("hello").await?;
        assert_eq!(receiver.recv().await?.as_deref(), Some(&b"hello"[..]));
        drop(sender);
        assert!(receiver.recv().await?.is_none());
        let mut later = OpenOptions::new().open_sender(&named.0)?;
        later.send("after the end").await?;
        later.drain().await?;
        assert!(receiver.recv().await?.is_none(), "a stream continued after its end");
        let mut both = OpenOptions::new().read_write(true).open_sender(&named.0)?;
        both.send("without a reader").await?;
        let missing = OpenOptions::new().open_receiver("/nonexistent/pipe").unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        assert!(missing.to_string().contains("/nonexistent/pipe"), "{missing}");
        Ok(())
    });
}

#[test]
fn pipes_dropped_in_use_leave_nothing_open() {
    // The test needs a process of its own, since descriptors belong to the whole process.
    if !rerun::is_alone(rerun!(pipes_dropped_in_use_leave_nothing_open)) {
        return;
    }
    on_each(|| async {
        // Creates one pipe first, so that lazily opened descriptors already exist.
        drop(pipe()?);
        yield_now().await;
        let before = open_descriptors();
        for _ in 0..20 {
            let (mut sender, mut receiver) = pipe()?;
            assert!(touch(receiver.recv()).is_none());
            assert!(touch(sender.send(vec![0; 1 << 20])).is_none());
            yield_now().await;
        }
        while open_descriptors() > before {
            yield_now().await;
        }
        Ok(())
    });
}

#[test]
fn a_runtime_ends_with_pipes_in_use() {
    // The test needs a process of its own, since descriptors belong to the whole process.
    if !rerun::is_alone(rerun!(a_runtime_ends_with_pipes_in_use)) {
        return;
    }
    for choice in [DriverChoice::Auto, DriverChoice::Epoll] {
        let before = open_descriptors();
        let builder = Runtime::builder().driver(choice).shutdown_timeout(Duration::ZERO);
        let kept = run_on(builder, async {
            let (mut sender, mut receiver) = pipe()?;
            assert!(touch(receiver.recv()).is_none());
            touch(sender.send(vec![0; 1 << 20]));
            yield_now().await;
            Ok((sender, receiver))
        });
        drop(kept);
        assert_eq!(open_descriptors(), before);
    }
}

#[test]
fn pipes_need_a_runtime_on_a_real_kernel() {
    let _alone = alone();
    assert!(pipe().is_err());
    run_on(Runtime::builder().kernel(Sim::builder(1).build()), async {
        assert_eq!(pipe().unwrap_err().kind(), ErrorKind::Unsupported);
        Ok(())
    });
}
