//! Futures that were polled and then forgotten (`mem::forget`): an event that wakes one of them
//! still reaches the other waiters. Tasks that poll without a future are each woken. The tests use
//! the simulated kernel, which reports a lost wake as a deadlock.

use annulus::fs::{OpenOptions, Policy};
use annulus::net::{TcpListener, TcpStream, Transmit, UdpSocket};
use annulus::shards::{TryRecvError, TrySendError, channel};
use annulus::sim::{Sim, run_on};
use annulus::task::{JoinHandle, yield_now};
use annulus::{Runtime, spawn};
use std::future::{Future, poll_fn};
use std::io::{self, SeekFrom};
use std::rc::Rc;
use std::task::{Context, Waker};

fn simulate(future: impl Future<Output = io::Result<()>>) {
    let sim = Sim::builder(1).build();
    // Small, so that queues fill up soon.
    run_on(&sim, Runtime::builder().unsent_limit(4096), future).unwrap();
}

/// Polls a future, which has to wait, and forgets it.
fn forget<F: Future>(future: F) {
    let mut future = Box::pin(future);
    assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    std::mem::forget(future);
}

/// Spawns a task and lets it run until it waits.
async fn start<T: 'static>(future: impl Future<Output = T> + 'static) -> JoinHandle<T> {
    let task = spawn(future);
    yield_now().await;
    task
}

#[test]
fn a_forgotten_receive_leaves_its_datagram_to_the_next_one() {
    simulate(async {
        let socket = Rc::new(UdpSocket::bind("127.0.0.1:7000")?);
        let other = UdpSocket::bind("127.0.0.1:7001")?;
        for forgotten in 0..4 {
            (0..forgotten).for_each(|_| forget(socket.recv()));
            let receiver = start({
                let socket = socket.clone();
                async move { socket.recv().await }
            });
            let receiver = receiver.await;
            other.send_to("one", socket.local_addr()?).await?;
            assert_eq!(&*receiver.await.unwrap()?, b"one");
        }
        Ok(())
    });
}

#[test]
fn a_forgotten_accept_leaves_its_connection_to_the_next_one() {
    simulate(async {
        let listener = Rc::new(TcpListener::bind("127.0.0.1:7000")?);
        (0..3).for_each(|_| forget(listener.accept()));
        let acceptor = start({
            let listener = listener.clone();
            async move { listener.accept().await.map(drop) }
        });
        let acceptor = acceptor.await;
        let _client = TcpStream::connect("127.0.0.1:7000").await?;
        acceptor.await.unwrap()
    });
}

#[test]
fn a_forgotten_send_blocks_no_other_sender() {
    for capacity in 1..4 {
        simulate(async move {
            let (sender, mut receiver) = channel(capacity);
            (0..capacity).for_each(|n| sender.try_send(n).unwrap());
            (0..5).for_each(|_| forget(sender.send(99)));
            let senders = [100, 101].map(|value| {
                let sender = sender.clone();
                spawn(async move { sender.send(value).await })
            });
            yield_now().await;
            let mut got = Vec::new();
            while got.len() < capacity + 2 {
                got.extend(receiver.recv().await);
            }
            let expected: Vec<usize> = (0..capacity).chain([100, 101]).collect();
            assert_eq!(got, expected, "wrong values or order");
            for task in senders {
                task.await.unwrap().unwrap();
            }
            Ok(())
        });
    }
}

#[test]
fn a_forgotten_send_blocks_neither_try_send_nor_receives() {
    simulate(async {
        let (sender, mut receiver) = channel(1);
        sender.try_send(0).unwrap();
        (0..3).for_each(|_| forget(sender.send(99)));
        let live = sender.clone();
        let live = start(async move { live.send(1).await }).await;
        assert_eq!(receiver.try_recv(), Ok(0));
        let mut got = None;
        for _ in 0..20 {
            got = got.or_else(|| receiver.try_recv().ok());
            yield_now().await;
        }
        assert_eq!(got, Some(1));
        live.await.unwrap().unwrap();
        (0..5).for_each(|_| assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty)));
        sender.try_send(2).expect("the channel has no room");
        assert_eq!(sender.try_send(3), Err(TrySendError::Full(3)));
        Ok(())
    });
}

#[test]
fn a_forgotten_call_at_a_cursor_passes_it_to_the_next_one() {
    simulate(async {
        let options = OpenOptions::new().read(true).write(true).create(true);
        let mut file = options.policy(Policy::Offload).open("/file").await?;
        for forgotten in 0..4 {
            let mut clone = file.try_clone()?;
            let first = start(async move { clone.write_all("first").await.0 }).await;
            let mut clones =
                (0..forgotten).map(|_| file.try_clone()).collect::<Result<Vec<_>, _>>()?;
            clones.iter_mut().for_each(|clone| forget(clone.write_all("never")));
            let mut clone = file.try_clone()?;
            let last = start(async move { clone.write_all("last").await.0 }).await;
            first.await.unwrap()?;
            last.await.unwrap()?;
            assert_eq!(annulus::fs::read("/file").await?, b"firstlast");
            file.set_len(0).await?;
            file.seek(SeekFrom::Start(0)).await?;
        }
        Ok(())
    });
}

#[test]
fn every_task_that_polled_for_send_space_is_woken() {
    simulate(async {
        let socket = Rc::new(UdpSocket::bind("127.0.0.1:7000")?);
        let how = Transmit::to(UdpSocket::bind("127.0.0.1:7001")?.local_addr()?);
        while socket.try_send(&[0; 1000], &how).is_ok() {}
        let tasks: Vec<_> = (0..100)
            .map(|_| {
                let socket = socket.clone();
                spawn(async move { poll_fn(|cx| socket.poll_send_ready(cx)).await })
            })
            .collect();
        for task in tasks {
            task.await.unwrap()?;
        }
        Ok(())
    });
}

#[test]
fn every_task_that_polled_for_a_datagram_or_a_connection_is_woken() {
    simulate(async {
        let socket = Rc::new(UdpSocket::bind("127.0.0.1:7000")?);
        let listener = Rc::new(TcpListener::bind("127.0.0.1:7000")?);
        let (mut receives, mut accepts) = (Vec::new(), Vec::new());
        for _ in 0..3 {
            let (socket, listener) = (socket.clone(), listener.clone());
            receives.push(spawn(async move { poll_fn(|cx| socket.poll_recv_from(cx)).await }));
            accepts.push(spawn(async move { poll_fn(|cx| listener.poll_accept(cx)).await }));
        }
        yield_now().await;
        let other = UdpSocket::bind("127.0.0.1:7001")?;
        let mut clients = Vec::new();
        for _ in 0..3 {
            other.send_to("one", socket.local_addr()?).await?;
            clients.push(TcpStream::connect("127.0.0.1:7000").await?);
        }
        for (receive, accept) in receives.into_iter().zip(accepts) {
            receive.await.unwrap()?;
            accept.await.unwrap()?;
        }
        Ok(())
    });
}
