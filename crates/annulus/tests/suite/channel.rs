//! The channel between shards: order, bounds, fairness, and what dropping each end does.

use crate::common;

use annulus::shards::{Receiver, SendError, ShardError, TryRecvError, TrySendError, channel};
use annulus::spawn;
use common::{drivers, run, touch};
use std::future::{Future, pending};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

#[test]
fn ten_thousand_values_cross_in_order() {
    const EACH: usize = 5_000;
    for shards in drivers() {
        let (sender, receiver) = channel(16);
        let (sender, receiver) = (Mutex::new(Some(sender)), Mutex::new(Some(receiver)));
        let done: Result<Vec<()>, ShardError<io::Error>> = shards(3).run(async |shard| {
            if shard.index() == 0 {
                let receiver = receiver.lock().unwrap().take().unwrap();
                return in_order(receiver, [1, 2], EACH).await;
            }
            let sender = sender.lock().unwrap().clone().unwrap();
            for value in 0..EACH {
                sender.send((shard.index(), value)).await.unwrap();
            }
            Ok(())
        });
        done.unwrap();
    }
}

/// Receives `each` values from each of these senders, and checks that each sender's values are in
/// order.
async fn in_order(
    mut receiver: Receiver<(usize, usize)>,
    senders: [usize; 2],
    each: usize,
) -> io::Result<()> {
    let mut next = [0; 2];
    while next != [each; 2] {
        let (sender, value) = receiver.recv().await.expect("the channel ended too early");
        let place = senders.iter().position(|one| *one == sender).unwrap();
        assert_eq!(value, next[place]);
        next[place] += 1;
    }
    Ok(())
}

#[test]
fn threads_without_a_runtime_send_and_receive() {
    run(async {
        let (to, mut from) = channel(1000);
        let (back, mut answers) = channel(1000);
        let thread = std::thread::spawn(move || {
            (0..1000).for_each(|n| to.try_send(n).unwrap());
            to
        });
        let to = thread.join().unwrap();
        drop(to);
        while let Some(n) = from.recv().await {
            back.send(n + 1).await.unwrap();
        }
        let sum =
            std::thread::spawn(move || std::iter::from_fn(|| answers.try_recv().ok()).sum::<i32>());
        assert_eq!(sum.join().unwrap(), (1..=1000).sum());
        Ok(())
    });
}

#[test]
fn a_full_channel_refuses_or_waits() {
    run(async {
        // A capacity of zero counts as one.
        let (sender, mut receiver) = channel(0);
        sender.try_send(1).unwrap();
        assert_eq!(sender.try_send(2), Err(TrySendError::Full(2)));
        let other = sender.clone();
        let waiting = spawn(async move { other.send(2).await });
        annulus::task::yield_now().await;
        assert!(!waiting.is_finished());
        assert_eq!(receiver.recv().await, Some(1));
        waiting.await.unwrap().unwrap();
        assert_eq!(receiver.try_recv(), Ok(2));
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
        Ok(())
    });
}

#[test]
fn without_senders_the_rest_arrives_and_then_the_end() {
    run(async {
        let (sender, mut receiver) = channel(4);
        sender.send("left").await.unwrap();
        let last = sender.clone();
        drop(sender);
        assert_eq!(receiver.recv().await, Some("left"));
        let waiting = spawn(async move { (receiver.recv().await, receiver.try_recv()) });
        annulus::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(last);
        assert_eq!(waiting.await.unwrap(), (None, Err(TryRecvError::Disconnected)));
        Ok(())
    });
}

#[test]
fn without_a_receiver_values_are_returned_and_sent_ones_dropped() {
    run(async {
        let (sender, receiver) = channel(1);
        let sent = std::sync::Arc::new(());
        sender.send(sent.clone()).await.unwrap();
        let other = (sender.clone(), sent.clone());
        let waiting = spawn(async move { other.0.send(other.1).await });
        annulus::task::yield_now().await;
        drop(receiver);
        assert!(sender.is_closed());
        assert_eq!(waiting.await.unwrap(), Err(SendError(sent.clone())));
        assert_eq!(sender.try_send(sent.clone()), Err(TrySendError::Closed(sent.clone())));
        assert_eq!(sender.send(sent.clone()).await, Err(SendError(sent.clone())));
        assert_eq!(std::sync::Arc::strong_count(&sent), 1);
        Ok(())
    });
}

#[test]
fn a_dropped_send_sends_nothing_and_passes_on_its_turn() {
    run(async {
        let (sender, mut receiver) = channel(1);
        sender.send(0).await.unwrap();
        let first = sender.clone();
        let mut first = Box::pin(async move { first.send(1).await });
        assert!(poll_once(first.as_mut()).is_pending());
        let second = sender.clone();
        let second = spawn(async move { second.send(2).await });
        annulus::task::yield_now().await;
        // The first sender has been woken, and is dropped before it is polled again.
        assert_eq!(receiver.recv().await, Some(0));
        assert_eq!(
            sender.try_send(3),
            Err(TrySendError::Full(3)),
            "try_send overtook a waiting sender"
        );
        drop(first);
        second.await.unwrap().unwrap();
        assert_eq!(receiver.recv().await, Some(2));
        Ok(())
    });
}

#[test]
fn a_dropped_receive_loses_nothing() {
    run(async {
        let (sender, mut receiver) = channel(8);
        for round in 0..100 {
            assert!(touch(receiver.recv()).is_none());
            sender.send(round).await.unwrap();
            drop(receiver.recv());
            assert_eq!(receiver.recv().await, Some(round));
        }
        Ok(())
    });
}

#[test]
fn an_ended_shard_closes_its_channels() {
    let (sender, receiver) = channel(1);
    let receiver = Mutex::new(Some(receiver));
    let done: Result<Vec<()>, ShardError<io::Error>> = annulus::shards(2, async |shard| {
        if shard.index() == 0 {
            let mut receiver = receiver.lock().unwrap().take().unwrap();
            let (started, mut has_started) = channel(1);
            spawn(async move {
                let _not_send = Rc::new(());
                started.send(()).await.unwrap();
                while receiver.recv().await.is_some() {}
                pending::<()>().await
            });
            has_started.recv().await.unwrap();
            return Ok(());
        }
        while sender.send(()).await.is_ok() {}
        Ok(())
    });
    done.unwrap();
}

fn poll_once<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}
