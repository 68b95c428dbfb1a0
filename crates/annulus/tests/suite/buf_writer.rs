//! The writer that gathers: what leaves when, in which order, and how many sends that takes.

use crate::common;

use annulus::io::{AsyncRecv, AsyncSend, AsyncStream, BufWriter, copy, copy_bidirectional};
use annulus::net::{TcpStream, UnixStream};
use annulus::{Counters, DriverChoice, Runtime, counters, spawn, yield_now};
use common::{half_pair, pair, pattern, receive, run, run_on, touch};
use std::io::{self, IoSlice, Read};
use std::task::{Context, Poll};

fn counted() -> Counters {
    counters().expect("a runtime")
}

/// Takes a few bytes at a time, and every other time none yet.
#[derive(Default)]
struct Slow {
    taken: Vec<u8>,
    calls: usize,
    ended: bool,
}

impl AsyncSend for Slow {
    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.calls += 1;
        if self.calls.is_multiple_of(2) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let count = bytes.len().min(7);
        self.taken.extend_from_slice(&bytes[..count]);
        Poll::Ready(Ok(count))
    }

    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.ended = true;
        Poll::Ready(Ok(()))
    }
}

#[test]
fn all_is_passed_on_in_order() {
    run(async {
        let text = pattern(3000);
        let mut writer = BufWriter::with_capacity(64, Slow::default());
        for (number, piece) in text.chunks(50).enumerate() {
            match number % 5 {
                0 => writer.send(piece.to_vec()).await?,
                1 => assert_eq!(
                    writer.write_vectored(&[IoSlice::new(piece), IoSlice::new(&[])]).await?,
                    50
                ),
                2 => {
                    // A flush that is dropped goes on with the next call.
                    _ = touch(writer.flush());
                    writer.write_all(piece).await?;
                }
                _ => writer.write_all(piece).await?,
            }
            assert!(writer.buffered() <= 64);
        }
        writer.shutdown().await?;
        let slow = writer.into_inner();
        assert!(slow.taken == text && slow.ended);
        Ok(())
    });
}

#[test]
fn what_does_not_fit_is_passed_on_and_not_gathered() {
    run(async {
        let mut writer = BufWriter::with_capacity(8, Vec::new());
        writer.write_all(b"12345").await?;
        assert_eq!((writer.buffered(), writer.get_ref().len()), (5, 0));
        writer.write_all(b"678").await?;
        assert_eq!((writer.buffered(), writer.get_ref().len()), (8, 0));
        writer.write_all(b"9").await?;
        assert_eq!((writer.buffered(), writer.get_ref().len()), (1, 8));
        writer.write_all(b"more than it has space for").await?;
        assert_eq!(writer.buffered(), 0);
        assert_eq!(writer.get_ref(), b"123456789more than it has space for");
        let mut none = BufWriter::with_capacity(0, Vec::new());
        none.write_all(b"at once").await?;
        assert_eq!((none.buffered(), none.into_inner()), (0, b"at once".to_vec()));
        Ok(())
    });
}

#[test]
fn writes_of_many_turns_leave_as_one_send() {
    for driver in [DriverChoice::Epoll, DriverChoice::Uring] {
        if Runtime::builder().driver(driver).build().is_err() {
            eprintln!("skipped on {driver}, which is blocked here");
            continue;
        }
        let body = async {
            let (stream, mut peer) = half_pair().await?;
            let mut writer = BufWriter::new(stream);
            // The listener closes.
            for _ in 0..3 {
                yield_now().await;
            }
            let before = counted().sqes;
            for _ in 0..100 {
                writer.write_all(b"a line of a few bytes\n").await?;
                yield_now().await;
            }
            assert_eq!(counted().sqes, before, "nothing has left");
            writer.flush().await?;
            writer.get_mut().drain().await?;
            assert_eq!(counted().sqes - before, 1);
            let mut all = vec![0; 2200];
            peer.read_exact(&mut all)?;
            assert!(all == b"a line of a few bytes\n".repeat(100));
            Ok(())
        };
        run_on(Runtime::builder().driver(driver), body);
    }
}

/// Answers each message twice, in one flush.
async fn serve(mut stream: impl AsyncStream) -> io::Result<()> {
    while let Some(message) = stream.recv().await? {
        stream.write_all(&message).await?;
        stream.send(message).await?;
        stream.flush().await?;
    }
    stream.shutdown().await
}

#[test]
fn a_stream_behind_a_writer_is_a_stream() {
    run(async {
        let (client, server) = UnixStream::pair()?;
        spawn(serve(BufWriter::new(server)));
        let mut client = BufWriter::new(client);
        client.write_all(b"twice ").await?;
        client.flush().await?;
        assert_eq!(&*client.recv_exact(12).await?, b"twice twice ");
        client.shutdown().await?;
        assert!(client.recv().await?.is_none());
        Ok(())
    });
}

#[test]
fn copies_go_behind_what_was_gathered() {
    run(async {
        let ((client, near), (far, mut server)) = (pair().await?, pair().await?);
        let mut far = BufWriter::new(far);
        far.write_all(b"head ").await?;
        let proxy = spawn(async move {
            let mut near: TcpStream = near;
            copy_bidirectional(&mut near, &mut far).await
        });
        let mut client = client;
        copy(&mut &b"and body"[..], &mut client).await?;
        client.shutdown().await?;
        assert_eq!(receive(&mut server, 100).await?, b"head and body");
        server.shutdown().await?;
        assert_eq!(proxy.await.expect("no panic")?, (8, 0));
        Ok(())
    });
}
