//! Memory that the kernel used after its owner had freed it.

use crate::common::{half_pair, pair, pattern, receive, run, run_on, touch};
use crate::users_bugs::{simulate, unkind};
use annulus::net::{TcpListener, TcpStream};
use annulus::task::yield_now;
use annulus::time::sleep;
use annulus::{Lease, Runtime, spawn};
use std::future::Future;
use std::hint::black_box;
use std::io::{Read, Write};
use std::task::{Context, Waker};
use std::time::Duration;

/// A buffer was freed with its stream while the kernel was still writing to it. The simulated
/// kernel compares contents: it panics if memory lent to it has been overwritten, for example after
/// it was freed and reused.
#[test]
fn glommio_52_buffers_against_drop() {
    for seed in 0..40 {
        let sim = unkind(seed);
        simulate(&sim, async {
            for round in 0..20 {
                let (mut stream, mut peer) = pair().await?;
                assert!(touch(stream.recv()).is_none());
                drop(touch(stream.send(pattern(100_000))));
                drop(touch(peer.send(pattern(100_000))));
                sleep(Duration::from_micros(round * 11 % 400)).await;
                drop(stream);
                sim.check();
                drop(peer);
            }
            Ok(())
        });
    }
}

/// A read handed out memory that the runtime continued to use. A lease borrows nothing, and the
/// runtime never writes to it.
#[test]
fn glommio_118_borrowed_read_unsound() {
    fn owns<T: 'static>(value: T) -> T {
        value
    }
    run_on(Runtime::builder().stream_buffer_size(4096).stream_buffer_count(4), async {
        let (mut stream, mut peer) = pair().await?;
        peer.send("kept").await?;
        let kept: Lease = owns(stream.recv().await?.expect("the stream ended too early"));
        // Receives far more than the pool holds, so that every other buffer is reused many times.
        let rest = pattern(1 << 20);
        let sender = spawn({
            let rest = rest.clone();
            async move { peer.send(rest).await.map(|()| peer) }
        });
        assert!(receive(&mut stream, rest.len()).await? == rest);
        let peer = sender.await.unwrap()?;
        assert_eq!(&*kept, b"kept");
        drop((stream, peer));
        sleep(Duration::from_millis(1)).await;
        assert_eq!(&*kept, b"kept", "the lease lost its bytes with its stream");
        Ok(())
    });
}

/// Dropping the future of a write freed the bytes that the kernel was still sending.
#[test]
fn foyer_1286_rio_1_use_after_free_on_drop() {
    run(async {
        let (mut stream, mut peer) = half_pair().await?;
        let sent = pattern(8 << 20);
        // The peer does not read, so the send waits in the kernel when its future and its stream
        // are dropped.
        assert!(touch(stream.send(sent.clone())).is_none());
        sleep(Duration::from_millis(5)).await;
        drop(stream);
        // Freed memory would be allocated again here, and overwritten.
        let scribbled: Vec<Vec<u8>> = (0..4).map(|_| black_box(vec![0xA5; 8 << 20])).collect();
        let reader = std::thread::spawn(move || {
            let mut got = Vec::new();
            peer.read_to_end(&mut got).map(|_| got)
        });
        while !reader.is_finished() {
            sleep(Duration::from_millis(1)).await;
        }
        assert!(reader.join().unwrap()? == sent);
        drop(scribbled);
        Ok(())
    });
}

/// A function returned early, and the kernel read an address or vectors from its stack frame.
#[test]
fn photonlibos_1270_use_after_free_on_early_return() {
    for seed in 0..40 {
        simulate(&unkind(seed), async {
            let listener = TcpListener::bind("127.0.0.1:7000")?;
            let mut accepted = Vec::new();
            for _ in 0..10 {
                return_early(listener.local_addr()?);
                black_box([0xA5_u8; 4096]);
                let mut client = TcpStream::connect(listener.local_addr()?).await?;
                send_and_return_early(&mut client);
                black_box([0xA5_u8; 4096]);
                client.shutdown().await?;
                accepted.push(client);
            }
            let mut whole = 0;
            while whole < 10 {
                let (mut stream, _) = listener.accept().await?;
                let got = receive(&mut stream, usize::MAX).await;
                // Connects that were dropped early may have succeeded. They sent nothing or were
                // reset.
                whole += usize::from(got.is_ok_and(|bytes| bytes == b"one, two, three"));
            }
            Ok(())
        });
    }
}

/// The address exists only in this stack frame.
fn return_early(address: std::net::SocketAddr) {
    let address = black_box(address);
    assert!(touch(TcpStream::connect(address)).is_none());
}

/// The list of chunks exists only in this stack frame.
fn send_and_return_early(client: &mut TcpStream) {
    let chunks = [b"one, ".to_vec(), b"two, ".to_vec(), b"three".to_vec()];
    drop(touch(client.send_vectored(chunks)));
}

/// `mem::forget` kept a guard's destructor from running, and the kernel wrote to freed memory.
#[test]
fn openvmm_3271_mem_forget_defeats_guards() {
    for seed in 0..40 {
        simulate(&unkind(seed), async {
            let (mut stream, mut peer) = pair().await?;
            let listener = TcpListener::bind("127.0.0.1:0")?;
            forget_polled(stream.recv());
            forget_polled(listener.accept());
            forget_polled(stream.send("sent all the same"));
            black_box([0xA5_u8; 4096]);
            yield_now().await;
            peer.send("not lost").await?;
            assert_eq!(receive(&mut stream, 8).await?, b"not lost");
            assert_eq!(receive(&mut peer, 17).await?, b"sent all the same");
            TcpStream::connect(listener.local_addr()?).await?;
            listener.accept().await?;
            Ok(())
        });
    }
}

/// Polls a future once, and then frees its memory without running its destructor.
fn forget_polled<F: Future>(future: F) {
    let mut place = Box::pin(std::mem::ManuallyDrop::new(future));
    // SAFETY: the inner future stays in place until it is forgotten. Freeing its memory without
    // dropping it violates the contract of `Pin`. That is what this test is about: these futures
    // must not rely on that contract.
    let inner = unsafe { place.as_mut().map_unchecked_mut(|held| &mut **held) };
    _ = inner.poll(&mut Context::from_waker(Waker::noop()));
}

/// On Linux: forgotten futures, a peer that writes, and bytes that must arrive whole.
#[test]
fn openvmm_3271_mem_forget_defeats_guards_on_linux() {
    run(async {
        let (mut stream, mut peer) = half_pair().await?;
        std::mem::forget(Box::pin(stream.recv()));
        for _ in 0..100 {
            let mut future = Box::pin(stream.recv());
            assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            std::mem::forget(future);
            yield_now().await;
        }
        peer.write_all(b"not lost")?;
        assert_eq!(receive(&mut stream, 8).await?, b"not lost");
        Ok(())
    });
}
