//! A task that always finds something ready delays another one by one budget at most, whatever it finds ready.

use crate::common::run;
use annulus::sync::{Mutex, Notify, Semaphore, broadcast, mpsc, watch};
use annulus::time::{Instant, sleep_until};
use annulus::{Runtime, consume_budget, shards, spawn, yield_now};
use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;

const ITEMS: u32 = 1_000_000;

/// Counts what a task has completed.
#[derive(Clone, Default)]
struct Count(Rc<Cell<u32>>);

impl Count {
    fn up(&self) {
        self.0.set(self.0.get() + 1);
    }
}

/// Runs the tasks beside one that looks at the count each time it runs, which they must not raise by more than a budget.
fn delays_by_one_budget<F: Future<Output = ()> + 'static>(drain: impl FnOnce(Count) -> F) {
    run(async {
        let count = Count::default();
        let drains = spawn(drain(count.clone()));
        let (mut last, mut turns) = (0, 0);
        while !drains.is_finished() {
            yield_now().await;
            let now = count.0.get();
            assert!(now - last <= 128, "{} at once", now - last);
            last = now;
            turns += 1;
        }
        drains.await.unwrap();
        assert!(count.0.get() > 128 && turns > 1, "it was interrupted");
        Ok(())
    });
}

#[test]
fn a_channel_of_this_thread() {
    delays_by_one_budget(async |count| {
        let (sender, mut receiver) = mpsc::unbounded_channel();
        (0..ITEMS).for_each(|item| sender.send(item).unwrap());
        drop(sender);
        while receiver.recv().await.is_some() {
            count.up();
        }
        assert_eq!(count.0.get(), ITEMS);
    });
}

#[test]
fn a_channel_of_all_threads() {
    delays_by_one_budget(async |count| {
        let (sender, mut receiver) = shards::channel(ITEMS as usize);
        (0..ITEMS).for_each(|item| sender.try_send(item).unwrap());
        drop(sender);
        while receiver.recv().await.is_some() {
            count.up();
        }
        assert_eq!(count.0.get(), ITEMS);
    });
}

#[test]
fn sends_that_always_have_room() {
    delays_by_one_budget(async |count| {
        let (sender, _receiver) = mpsc::channel(ITEMS as usize);
        let (shared, _other) = shards::channel(ITEMS as usize);
        for item in 0..ITEMS / 2 {
            sender.send(item).await.unwrap();
            count.up();
            shared.send(item).await.unwrap();
            count.up();
        }
    });
}

#[test]
fn a_broadcast_and_a_watch() {
    delays_by_one_budget(async |count| {
        let (sender, mut receiver) = broadcast::channel(ITEMS as usize);
        (0..ITEMS / 10).for_each(|item| assert_eq!(sender.send(item), Ok(1)));
        drop(sender);
        while receiver.recv().await.is_ok() {
            count.up();
        }
        let (sender, mut receiver) = watch::channel(0);
        for item in 0..ITEMS / 10 {
            sender.send(item).unwrap();
            receiver.changed().await.unwrap();
            count.up();
        }
    });
}

#[test]
fn locks_permits_and_notifications() {
    delays_by_one_budget(async |count| {
        let (mutex, limit, notify) = (Mutex::new(0), Semaphore::new(1), Notify::new());
        for _ in 0..ITEMS / 30 {
            *mutex.lock().await += 1;
            count.up();
            drop(limit.acquire().await.unwrap());
            count.up();
            notify.notify_one();
            notify.notified().await;
            count.up();
        }
    });
}

#[test]
fn timers_that_are_due() {
    delays_by_one_budget(async |count| {
        for _ in 0..ITEMS / 10 {
            sleep_until(Instant::now()).await;
            count.up();
        }
    });
}

#[test]
fn a_loop_of_the_programs_own() {
    delays_by_one_budget(async |count| {
        for _ in 0..ITEMS / 10 {
            consume_budget().await;
            count.up();
        }
    });
}

#[test]
fn a_budget_of_one_works_and_of_zero_is_refused() {
    let error = Runtime::builder().task_budget(0).build().unwrap_err();
    assert!(error.to_string().contains("task_budget of 0"), "{error}");
    let mut runtime = Runtime::builder().task_budget(1).build().unwrap();
    runtime.block_on(async {
        let (sender, mut receiver) = mpsc::channel(10);
        for item in 0..10 {
            sender.send(item).await.unwrap();
        }
        drop(sender);
        let mut sum = 0;
        while let Some(item) = receiver.recv().await {
            sum += item;
        }
        assert_eq!(sum, 45);
    });
}
