use crate::common::{run, touch};
use crate::concurrency::Drops;
use annulus::sync::CancellationToken;
use annulus::{spawn, yield_now};
use futures_util::future::{Either, select};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake};
use tokio::sync::mpsc;

#[test]
fn every_waiter_is_woken_also_on_another_thread() {
    fn is_shared<T: Send + Sync + 'static>() {}
    is_shared::<CancellationToken>();
    run(async {
        let stop = CancellationToken::new();
        let here: Vec<_> = (0..100).map(|_| spawn(stop.clone().cancelled_owned())).collect();
        let token = stop.clone();
        let there = std::thread::spawn(|| annulus::run(async move { token.cancelled().await }));
        yield_now().await;
        assert!(!stop.is_cancelled() && touch(stop.cancelled()).is_none());
        std::thread::spawn({
            let stop = stop.clone();
            move || stop.cancel()
        });
        for task in here {
            task.await.unwrap();
        }
        there.join().unwrap();
        stop.cancel();
        assert!(stop.is_cancelled() && touch(stop.cancelled()).is_some());
        Ok(())
    });
}

#[test]
fn children_end_with_their_parent_and_not_the_other_way_round() {
    let parent = CancellationToken::new();
    let (one, two) = (parent.child_token(), parent.child_token());
    let grandchild = one.child_token();
    one.cancel();
    assert!(one.is_cancelled() && grandchild.is_cancelled());
    assert!(!parent.is_cancelled() && !two.is_cancelled());
    parent.cancel();
    assert!(two.is_cancelled() && parent.child_token().is_cancelled());
}

/// The first wake finds all descendants cancelled; so does another thread that cancels the same token meanwhile.
#[test]
fn all_descendants_are_cancelled_before_anything_is_woken() {
    struct Looks(CancellationToken, [CancellationToken; 2], AtomicBool);

    impl Wake for Looks {
        fn wake(self: Arc<Self>) {
            self.0.cancel();
            let all = self.1.iter().all(CancellationToken::is_cancelled);
            self.2.store(all, Ordering::Relaxed);
        }
    }

    let parent = CancellationToken::new();
    let child = parent.child_token();
    let descendants = [child.child_token(), child];
    let looks = Arc::new(Looks(parent.clone(), descendants, AtomicBool::new(false)));
    let mut waits = pin!(parent.cancelled());
    let waker = looks.clone().into();
    assert!(waits.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    parent.cancel();
    assert!(looks.2.load(Ordering::Relaxed), "seen by what was woken");
}

/// A clone of a child is the same child; its parent may be gone.
#[test]
fn children_whose_parents_were_dropped_can_be_cancelled() {
    let parent = CancellationToken::new();
    let grandchild = parent.child_token().child_token();
    let clone = grandchild.clone();
    drop((parent.child_token(), grandchild));
    parent.cancel();
    assert!(clone.is_cancelled());

    let orphan = CancellationToken::new().child_token();
    assert!(!orphan.is_cancelled());
    orphan.cancel();
    assert!(orphan.is_cancelled());
}

#[test]
fn a_chain_of_any_length_is_cancelled_and_dropped_without_recursion() {
    let first = CancellationToken::new();
    let mut last = first.child_token();
    for _ in 0..100_000 {
        last = last.child_token();
    }
    // The chain is held by its last link only, and is dropped with that link.
    let other = CancellationToken::new();
    let mut end = other.child_token();
    for _ in 0..100_000 {
        end = end.child_token();
    }
    drop((other, end));
    first.cancel();
    assert!(last.is_cancelled());
}

#[test]
fn a_future_runs_until_the_token_is_cancelled_and_is_then_dropped() {
    run(async {
        let (stop, drops) = (CancellationToken::new(), Drops::default());
        assert_eq!(stop.run_until_cancelled(async { 1 }).await, Some(1));
        let waits = spawn({
            let (stop, held) = (stop.clone(), drops.counted());
            async move { stop.run_until_cancelled(crate::concurrency::hold(held)).await }
        });
        yield_now().await;
        stop.cancel();
        assert_eq!((waits.await?, drops.count()), (None, 1));
        assert_eq!(stop.run_until_cancelled(async { 1 }).await, None, "if both are ready");
        Ok(())
    });
}

#[test]
fn a_loop_ends_between_two_values() {
    run(async {
        let (sender, mut receiver) = mpsc::channel(4);
        let stop = CancellationToken::new();
        let child = stop.child_token();
        let sums = spawn(async move {
            let mut sum = 0;
            loop {
                let cancelled = child.cancelled();
                match select(pin!(receiver.recv()), cancelled).await {
                    Either::Left((value, _)) => sum += value.unwrap(),
                    Either::Right(_) => return sum,
                }
            }
        });
        for value in 1..=4 {
            sender.send(value).await.unwrap();
        }
        yield_now().await;
        stop.cancel();
        assert_eq!(sums.await?, 10);
        Ok(())
    });
}

#[test]
fn a_guard_cancels_unless_it_is_disarmed() {
    let stop = CancellationToken::new();
    let stop = stop.drop_guard().disarm();
    assert!(!stop.is_cancelled());
    drop(stop.clone().drop_guard());
    assert!(stop.is_cancelled());
}
