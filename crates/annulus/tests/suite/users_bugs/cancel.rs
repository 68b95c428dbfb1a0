//! Cancels that lose data or resources, and lost wakes.

use crate::common::{pair, pattern, receive, run, touch};
use crate::users_bugs::{simulate, unkind};
use annulus::net::{TcpListener, TcpStream};
use annulus::sim::Sim;
use annulus::task::yield_now;
use annulus::time::{sleep, timeout};
use annulus::{Runtime, spawn};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

#[derive(Default)]
struct Count(AtomicU32);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A cancelled operation that creates a descriptor had succeeded, and the descriptor was never
/// closed.
#[test]
fn tokio_7979_a_cancelled_open_leaks_descriptors() {
    for seed in 0..40 {
        let sim = unkind(seed);
        simulate(&sim, async {
            let listener = TcpListener::bind("127.0.0.1:7000")?;
            let address = listener.local_addr()?;
            for round in 0..40 {
                drop(touch(TcpStream::connect(address)));
                let wait = Duration::from_micros(round * 13 % 300);
                drop(timeout(wait, TcpStream::connect(address)).await);
                drop(touch(listener.accept()));
            }
            drop(listener);
            sleep(Duration::from_secs(60)).await;
            // After this time, only the ring is open.
            assert_eq!(sim.open_descriptors(), 1, "seed {seed}: {:?}", sim.leftovers());
            Ok(())
        });
    }
}

/// The completion of a dropped future went to the next user of its slot.
#[test]
fn tokio_8112_a_late_completion_wakes_the_wrong_future() {
    for seed in 0..100 {
        simulate(&unkind(seed), async {
            let (mut old, mut its_peer) = pair().await?;
            assert!(touch(old.recv()).is_none());
            yield_now().await;
            its_peer.send("for the old one").await?;
            drop(old);
            let (mut new, mut peer) = pair().await?;
            let count = Arc::new(Count::default());
            let waker = Waker::from(count.clone());
            let first = pin!(new.recv()).poll(&mut Context::from_waker(&waker));
            assert!(first.is_pending());
            sleep(Duration::from_secs(1)).await;
            assert_eq!(count.0.load(Ordering::SeqCst), 0, "seed {seed}: woken needlessly");
            peer.send("for the new one").await?;
            sleep(Duration::from_secs(1)).await;
            assert_eq!(
                count.0.load(Ordering::SeqCst),
                1,
                "seed {seed}: not woken once, for its own bytes"
            );
            assert_eq!(receive(&mut new, 15).await?, b"for the new one");
            Ok(())
        });
    }
}

/// A receive that was cancelled after the kernel had picked a buffer kept that buffer forever.
#[test]
fn compio_746_cancel_loses_the_provided_buffer() {
    for seed in 0..20 {
        let sim = unkind(seed);
        let builder = Runtime::builder().stream_buffer_size(4096).stream_buffer_count(4);
        annulus::sim::run_on(&sim, builder, lose_buffers(&sim)).unwrap();
    }
}

async fn lose_buffers(sim: &Sim) -> std::io::Result<()> {
    // In each round, at most one buffer per pair is in flight while its receive is cancelled.
    for round in 0..50 {
        let (mut stream, mut peer) = pair().await?;
        assert!(touch(stream.recv()).is_none());
        peer.send(pattern(3000)).await?;
        let wait = Duration::from_micros(round * 7 % 150);
        // Some receives are dropped before the bytes arrive, some while they arrive, and some
        // afterwards.
        match round % 2 {
            0 => sleep(wait).await,
            _ => drop(timeout(wait, stream.recv()).await),
        }
        drop(stream);
    }
    sleep(Duration::from_secs(60)).await;
    assert_eq!(sim.buffers_held(), 4, "the kernel does not have all four buffers again");
    Ok(())
}

/// A wake was lost if it arrived while its task was being polled or while the loop went to sleep.
#[test]
fn compio_948_a_lost_wake_strands_a_task() {
    run(async {
        for _ in 0..100 {
            let limit = Duration::from_secs(60);
            timeout(limit, woken_while_polled()).await.expect("the task is stranded");
            timeout(limit, spawn(woken_while_polled()))
                .await
                .expect("the task is stranded")
                .unwrap();
        }
        Ok(())
    });
}

/// Another thread wakes this task during the first poll, and around the end of the second one.
async fn woken_while_polled() {
    let mut polls = 0;
    poll_fn(|cx| {
        polls += 1;
        let waker = cx.waker().clone();
        match polls {
            1 => std::thread::spawn(move || waker.wake()).join().unwrap(),
            // This wake may arrive while the task is polled or while the loop goes to sleep.
            2 => drop(std::thread::spawn(move || waker.wake())),
            _ => return Poll::Ready(()),
        }
        Poll::Pending
    })
    .await;
}
