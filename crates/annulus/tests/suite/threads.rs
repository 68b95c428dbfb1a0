//! Invariants 13 and 14: what may move between threads, and how.

use crate::common;

use annulus::net::{Parts, TcpStream};
use annulus::task::{JoinHandle, yield_now};
use annulus::time::timeout;
use annulus::{Handle, Lease, Runtime, SharedBytes};
use common::{half_pair, pair, pattern, receive, run};
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

struct Probe<T>(std::marker::PhantomData<T>);
impl<T: Send> Probe<T> {
    const IS_SEND: bool = true;
}
trait NotSend {
    const IS_SEND: bool = false;
}
impl<T> NotSend for Probe<T> {}

const _: () =
    assert!(Probe::<SharedBytes>::IS_SEND && Probe::<Handle>::IS_SEND && Probe::<Parts>::IS_SEND);
const _: () =
    assert!(!Probe::<Lease>::IS_SEND && !Probe::<TcpStream>::IS_SEND && !Probe::<Runtime>::IS_SEND);
const _: () =
    assert!(Probe::<JoinHandle<u32>>::IS_SEND && !Probe::<JoinHandle<std::rc::Rc<u32>>>::IS_SEND);

#[test]
fn shared_bytes_return_from_another_thread() {
    // There are 4 buffers and far more messages, so all buffers must come back.
    common::run_on(Runtime::builder().stream_buffer_size(4096).stream_buffer_count(4), async {
        let (mut client, mut server) = pair().await?;
        let (sender, receiver) = mpsc::channel::<SharedBytes>();
        let thread =
            std::thread::spawn(move || receiver.into_iter().map(|b| b.len()).sum::<usize>());
        for _ in 0..1000 {
            client.send(pattern(1000)).await?;
            let mut left = 1000;
            while left > 0 {
                let lease = server.recv().await?.unwrap();
                left -= lease.len();
                sender.send(lease.into_shared()).unwrap();
            }
        }
        drop(sender);
        assert_eq!(thread.join().unwrap(), 1_000_000);
        Ok(())
    });
}

#[test]
fn shared_bytes_outlive_the_runtime() {
    let bytes = run(async {
        let (mut client, mut server) = pair().await?;
        client.send("still here").await?;
        Ok(server.recv().await?.unwrap().into_shared())
    });
    let text = std::thread::spawn(move || bytes.to_vec()).join().unwrap();
    assert_eq!(text, b"still here");
}

#[test]
fn a_handle_spawns_from_another_thread_and_its_result_is_awaited_here() {
    run(async {
        let handle = annulus::handle()?;
        let (sender, receiver) = mpsc::channel::<JoinHandle<u32>>();
        std::thread::spawn(move || {
            for n in 0..100 {
                sender.send(handle.spawn(async move { n * 2 }).unwrap()).unwrap();
            }
        });
        let mut sum = 0;
        for task in collect(receiver).await {
            sum += task.await.unwrap();
        }
        assert_eq!(sum, 9900);
        Ok(())
    });
}

/// Collects everything that another thread sends, without blocking the runtime's thread.
async fn collect<T>(receiver: mpsc::Receiver<T>) -> Vec<T> {
    let mut all = Vec::new();
    loop {
        match receiver.try_recv() {
            Ok(item) => all.push(item),
            Err(mpsc::TryRecvError::Disconnected) => return all,
            Err(mpsc::TryRecvError::Empty) => {
                annulus::time::sleep(Duration::from_micros(200)).await
            }
        }
    }
}

#[test]
fn a_wake_from_another_thread_reaches_a_sleeping_loop() {
    run(async {
        for _ in 0..200 {
            let (sender, mut receiver) = futures_channel();
            let thread = std::thread::spawn(move || sender.send(5));
            assert_eq!(receiver.recv().await, 5);
            thread.join().unwrap();
        }
        Ok(())
    });
}

/// A channel for one value, whose receiver is woken by a foreign thread.
fn futures_channel() -> (Sender, Receiver) {
    let slot = std::sync::Arc::new(std::sync::Mutex::new((None, None)));
    (Sender(slot.clone()), Receiver(slot))
}

type Slot = std::sync::Arc<std::sync::Mutex<(Option<u32>, Option<std::task::Waker>)>>;
struct Sender(Slot);
struct Receiver(Slot);

impl Sender {
    fn send(&self, value: u32) {
        let mut slot = self.0.lock().unwrap();
        slot.0 = Some(value);
        if let Some(waker) = slot.1.take() {
            waker.wake();
        }
    }
}

impl Receiver {
    async fn recv(&mut self) -> u32 {
        std::future::poll_fn(|cx| {
            let mut slot = self.0.lock().unwrap();
            match slot.0.take() {
                Some(value) => std::task::Poll::Ready(value),
                None => {
                    slot.1 = Some(cx.waker().clone());
                    std::task::Poll::Pending
                }
            }
        })
        .await
    }
}

#[test]
fn stop_ends_block_on_and_the_runtime_can_continue() {
    let mut runtime = Runtime::new().unwrap();
    let handle = runtime.handle();
    let stopper = handle.clone();
    let thread = std::thread::spawn(move || stopper.stop());
    let error = runtime.try_block_on(std::future::pending::<()>()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::Interrupted);
    thread.join().unwrap();
    assert_eq!(runtime.block_on(async { 3 }), 3);
    drop(runtime);
    assert!(handle.spawn(async {}).is_err(), "a task was spawned after the end");
}

#[test]
fn a_connection_moves_with_its_received_bytes() {
    let sent = pattern(3 << 20);
    let expected = sent.clone();
    let (sender, receiver) = mpsc::channel::<Parts>();
    let other = std::thread::spawn(move || {
        let parts = receiver.recv().unwrap();
        run(async move {
            let mut stream = TcpStream::from_parts(parts)?;
            let rest = receive(&mut stream, usize::MAX).await?;
            stream.send("thanks").await?;
            stream.shutdown().await?;
            Ok(rest)
        })
    });
    let (first, answer) = run(async move {
        let (mut stream, mut peer) = half_pair().await?;
        let writer = std::thread::spawn(move || {
            peer.write_all(&sent).unwrap();
            peer.shutdown(std::net::Shutdown::Write).unwrap();
            let mut answer = String::new();
            peer.read_to_string(&mut answer).unwrap();
            answer
        });
        let first = receive(&mut stream, 100_000).await?;
        stream.send("and ").await?;
        sender.send(stream.into_parts().await?).unwrap();
        Ok((first, writer))
    });
    let rest = other.join().unwrap();
    assert!([first, rest].concat() == expected);
    assert_eq!(answer.join().unwrap(), "and thanks");
}

#[test]
fn a_connection_whose_peer_is_silent_moves_too() {
    run(async {
        let (mut stream, mut peer) = half_pair().await?;
        peer.write_all(b"x")?;
        stream.recv().await?;
        // A receive is armed, and no bytes arrive.
        assert!(timeout(Duration::from_millis(1), stream.recv()).await.is_err());
        let parts =
            timeout(Duration::from_secs(60), stream.into_parts()).await.expect("the test hangs")?;
        let mut stream = TcpStream::from_parts(parts)?;
        peer.write_all(b"after the move")?;
        assert_eq!(&*stream.recv().await?.unwrap(), b"after the move");
        Ok(())
    });
}

#[test]
fn no_stop_is_lost() {
    let mut runtime = Runtime::new().unwrap();
    let handle = runtime.handle();
    let (sender, receiver) = mpsc::channel::<u32>();
    let stopper = std::thread::spawn(move || {
        for round in receiver {
            handle.wake();
            (0..round * 7 % 400).for_each(|_| std::hint::spin_loop());
            handle.stop();
        }
    });
    for round in 0..20_000 {
        sender.send(round).unwrap();
        // If a stop were lost, this call would never return.
        assert!(runtime.try_block_on(std::future::pending::<()>()).is_err());
    }
    drop(sender);
    stopper.join().unwrap();
}

#[test]
fn a_thread_without_a_runtime_blocks_on_the_runtime_of_another() {
    let (ready, handles) = mpsc::channel();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let thread = std::thread::spawn(move || {
        run(async {
            ready.send(annulus::handle()?).expect("the receiver was dropped");
            stopped.await.expect("the sender was dropped");
            // A blocking call is refused if it would hold up a loop.
            let error = annulus::handle()?.block_on(|| async {}).unwrap_err();
            assert!(error.to_string().contains("would block the loop"), "{error}");
            Ok(())
        });
    });
    let handle: Handle = handles.recv().expect("no handle arrived");
    let echoed = handle.block_on(|| async {
        let (mut one, mut other) = pair().await?;
        one.send("over there").await?;
        // The lease is not `Send`, and is created on the runtime's thread.
        let lease: Lease = other.recv_exact(10).await?;
        annulus::time::sleep(Duration::from_millis(2)).await;
        io::Result::Ok(lease.to_vec())
    });
    assert_eq!(echoed.unwrap().unwrap(), b"over there");
    let panicked = std::panic::catch_unwind(|| handle.block_on(|| async { panic!("on purpose") }));
    assert_eq!(*panicked.unwrap_err().downcast::<&str>().unwrap(), "on purpose");
    let waits = handle.clone();
    let waits = std::thread::spawn(move || waits.block_on(std::future::pending::<()>));
    stop.send(()).expect("the runtime has ended");
    thread.join().expect("the thread panicked");
    assert!(
        waits.join().expect("the thread panicked").is_err(),
        "block_on returned a value after the end of the runtime"
    );
    assert!(handle.block_on(|| async {}).is_err());
}

/// Records that it has been dropped.
struct Held(Arc<AtomicBool>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn an_aborted_task_of_spawn_with_is_finished_only_once_its_future_is_dropped() {
    run(async {
        let handle = annulus::handle()?;
        let dropped = Arc::new(AtomicBool::new(false));
        let held = Held(dropped.clone());
        let task = handle.spawn_with(|| async move {
            let _held = held;
            std::future::pending::<()>().await;
        })?;
        while handle.tasks().await?.first().is_none_or(|task| task.polls == 0) {
            yield_now().await;
        }
        assert_eq!(handle.tasks().await?.len(), 1, "more than one task was spawned");
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
        assert!(dropped.load(Ordering::Relaxed), "the future still exists");
        Ok(())
    });
}

/// Nothing else could run the runtime meanwhile.
#[test]
fn a_handle_does_not_block_on_the_runtime_of_its_own_thread() {
    let runtime = Runtime::new().unwrap();
    let error = runtime.handle().block_on(|| async {}).unwrap_err();
    assert!(error.to_string().contains("use Runtime::block_on"), "{error}");
}
