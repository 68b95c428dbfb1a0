//! Invariant 3: what dropping each future does.

use crate::common;

use annulus::Runtime;
use annulus::net::{TcpListener, TcpStream};
use annulus::task::yield_now;
use annulus::time::{sleep, timeout};
use common::{error_of, half_pair, pair, pattern, receive, run, run_on, touch};
use std::io::{self, Read, Write};
use std::time::Duration;

#[test]
fn dropped_receives_lose_no_byte() {
    run(async {
        let (mut stream, mut peer) = half_pair().await?;
        let sent = pattern(8 << 20);
        let expected = sent.clone();
        let writer = std::thread::spawn(move || peer.write_all(&sent));
        let mut got = Vec::new();
        let mut round = 0;
        while got.len() < expected.len() {
            round += 1;
            match round % 3 {
                0 => drop(stream.recv()),
                1 => {
                    if let Some(lease) = touch(stream.recv()) {
                        got.extend_from_slice(&lease?.expect("the stream ended too early"));
                    }
                    yield_now().await;
                }
                _ => match timeout(Duration::from_micros(50), stream.recv()).await {
                    Ok(lease) => {
                        got.extend_from_slice(&lease?.expect("the stream ended too early"))
                    }
                    Err(_elapsed) => {}
                },
            }
        }
        writer.join().unwrap()?;
        assert!(got == expected);
        Ok(())
    });
}

#[test]
fn dropped_accepts_lose_no_connection() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        assert!(touch(listener.accept()).is_none(), "the accept completed without a client");
        let mut peers = Vec::new();
        for _ in 0..10 {
            peers.push(std::net::TcpStream::connect(address)?);
            // Runs turns, so that the armed accept delivers connections while no future waits.
            sleep(Duration::from_millis(1)).await;
        }
        for _ in 0..10 {
            listener.accept().await?;
        }
        Ok(())
    });
}

#[test]
fn a_dropped_send_finishes_in_order() {
    run(async {
        let (mut stream, mut peer) = half_pair().await?;
        let big = pattern(4 << 20);
        // Far over the bound: the future would wait, but is dropped after one poll.
        assert!(touch(stream.send(big.clone())).is_none());
        let reader = std::thread::spawn(move || {
            let mut got = Vec::new();
            peer.read_to_end(&mut got).map(|_| got)
        });
        stream.send("and the end").await?;
        stream.shutdown().await?;
        stream.recv().await?;
        let got = reader.join().unwrap()?;
        assert!(got[..big.len()] == big[..]);
        assert_eq!(&got[big.len()..], b"and the end");
        Ok(())
    });
}

#[test]
fn a_send_that_was_never_polled_sends_nothing() {
    run(async {
        let (mut stream, mut peer) = pair().await?;
        drop(stream.send("never"));
        stream.send("sent").await?;
        stream.shutdown().await?;
        assert_eq!(receive(&mut peer, 100).await?, b"sent");
        Ok(())
    });
}

#[test]
fn a_dropped_stream_sends_accepted_bytes() {
    run(async {
        let (mut stream, mut peer) = half_pair().await?;
        let big = pattern(4 << 20);
        assert!(touch(stream.send(big.clone())).is_none());
        drop(stream);
        let reader = std::thread::spawn(move || {
            let mut got = Vec::new();
            peer.read_to_end(&mut got).map(|_| got)
        });
        while !reader.is_finished() {
            sleep(Duration::from_millis(1)).await;
        }
        assert!(reader.join().unwrap()? == big);
        Ok(())
    });
}

#[test]
fn an_aborted_stream_resets() {
    run(async {
        let (stream, mut peer) = pair().await?;
        stream.abort();
        let error = peer.recv().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        let again = peer.recv().await.unwrap_err();
        assert_eq!(
            again.kind(),
            io::ErrorKind::ConnectionReset,
            "the error was not returned again"
        );
        Ok(())
    });
}

#[test]
fn connecting_without_an_answer_times_out() {
    run(async {
        // A listener with a full backlog ignores further handshakes.
        let listener = annulus::net::ListenOptions::new().backlog(0).bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let _fill: Vec<_> = (0..4)
            .map(|_| std::net::TcpStream::connect_timeout(&address, Duration::from_millis(100)))
            .collect();
        let error =
            TcpStream::connect_timeout(address, Duration::from_millis(20)).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(error.to_string().contains(&address.to_string()), "{error}");
        Ok(())
    });
}

#[test]
fn a_dropped_sleep_leaves_no_timer() {
    run(async {
        for _ in 0..1000 {
            assert!(touch(sleep(Duration::from_secs(3600))).is_none());
        }
        let start = annulus::time::Instant::now();
        sleep(Duration::from_millis(5)).await;
        assert!(start.elapsed() >= Duration::from_millis(5));
        Ok(())
    });
}

#[test]
fn a_stream_cut_off_by_the_linger_does_not_end_cleanly() {
    run_on(Runtime::builder().linger(Duration::from_millis(20)), async {
        let (mut stream, peer) = half_pair().await?;
        assert!(touch(stream.send(vec![1; 64 << 20])).is_none());
        drop(stream);
        assert_eq!(error_of(&peer).await?.kind(), io::ErrorKind::ConnectionReset);
        Ok(())
    });
}
