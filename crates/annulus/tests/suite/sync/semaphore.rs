use super::{is_ready, settle};
use crate::common::run;
use annulus::spawn;
use annulus::sync::{Semaphore, TryAcquireError};
use std::cell::Cell;
use std::rc::Rc;

#[test]
fn no_more_tasks_than_permits() {
    run(async {
        let (limit, running, most) = (Semaphore::new(3), Rc::new(Cell::new(0)), Rc::default());
        let tasks: Vec<_> = (0..50)
            .map(|_| {
                let (limit, running, most) = (limit.clone(), running.clone(), Rc::clone(&most));
                spawn(async move {
                    let _permit = limit.acquire().await.unwrap();
                    running.set(running.get() + 1);
                    Cell::set(&*most, running.get().max(most.get()));
                    annulus::yield_now().await;
                    running.set(running.get() - 1);
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!((most.get(), limit.available_permits()), (3, 3));
        Ok(())
    });
}

#[test]
fn many_at_once_are_not_overtaken() {
    run(async {
        let limit = Semaphore::new(3);
        let held = limit.try_acquire_many(2).unwrap();
        let (mut many, mut one) = (limit.acquire_many(3), limit.acquire());
        assert!(!is_ready(&mut many).await && !is_ready(&mut one).await);
        assert_eq!(limit.try_acquire().unwrap_err(), TryAcquireError::NoPermits);
        assert!(!is_ready(&mut one).await);
        drop(held);
        let many = many.await.unwrap();
        assert_eq!((many.count(), limit.available_permits()), (3, 0));
        assert!(!is_ready(&mut one).await);
        drop(many);
        one.await.unwrap().forget();
        assert_eq!(limit.available_permits(), 2);
        assert!(limit.acquire_many(0).await.is_ok(), "none is always there");
        Ok(())
    });
}

#[test]
fn permits_are_split_merged_added_and_taken_away() {
    run(async {
        let limit = Semaphore::new(0);
        limit.add_permits(4);
        let mut all = limit.try_acquire_many(4).unwrap();
        let one = all.split(1).unwrap();
        assert!(all.split(9).is_none());
        assert_eq!(all.count(), 3, "a split that fails changes nothing");
        drop(one);
        all.merge(limit.try_acquire().unwrap());
        assert_eq!((all.count(), limit.available_permits()), (4, 0));
        drop(all);
        assert_eq!((limit.forget_permits(3), limit.forget_permits(3)), (3, 1));
        Ok(())
    });
}

#[test]
fn a_close_refuses_those_that_wait() {
    run(async {
        let limit = Semaphore::new(0);
        let waits = spawn(limit.acquire());
        settle().await;
        limit.close();
        let error = waits.await.unwrap().unwrap_err();
        assert_eq!(error.to_string(), "the semaphore was closed");
        assert!(limit.acquire().await.is_err() && limit.is_closed());
        assert_eq!(limit.try_acquire().unwrap_err(), TryAcquireError::Closed);
        Ok(())
    });
}

#[test]
fn a_future_that_is_forgotten_stops_none() {
    run(async {
        let limit = Semaphore::new(1);
        let held = limit.try_acquire().unwrap();
        let mut first = limit.acquire_many(1);
        assert!(!is_ready(&mut first).await);
        let second = spawn(limit.acquire());
        settle().await;
        std::mem::forget(first);
        drop(held);
        drop(second.await.unwrap().unwrap());
        Ok(())
    });
}

/// The first in line has said that it needs more than is free: it must not be woken for less, again and again.
#[test]
fn a_waiter_that_needs_more_than_is_free_keeps_no_loop_busy() {
    run(async {
        let limit = Semaphore::new(2);
        let gone = limit.acquire_many(3);
        let mut gone = Box::pin(gone);
        assert!(!is_ready(&mut gone).await);
        let (five, one) = (spawn(limit.acquire_many(5)), spawn(limit.acquire()));
        settle().await;
        drop(gone);
        settle().await;
        let enters = || annulus::counters().unwrap().enters;
        let before = enters();
        annulus::time::sleep(std::time::Duration::from_millis(20)).await;
        assert!(enters() - before < 100, "{} turns", enters() - before);
        limit.add_permits(3);
        drop(five.await.unwrap().unwrap());
        drop(one.await.unwrap().unwrap());
        Ok(())
    });
}
