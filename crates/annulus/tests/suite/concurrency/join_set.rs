use crate::common::run;
use crate::concurrency::{Drops, hold};
use annulus::task::{JoinSet, yield_now};
use annulus::time::sleep;
use annulus::{sim, spawn};
use std::io;
use std::panic::resume_unwind;
use std::time::Duration;

#[test]
fn results_arrive_in_the_order_in_which_tasks_finish() {
    sim::run(1, async {
        let delays = [30, 10, 20, 40];
        let mut set: JoinSet<_> = delays
            .into_iter()
            .map(|delay| async move {
                sleep(Duration::from_secs(delay)).await;
                delay
            })
            .collect();
        let mut order = Vec::new();
        while let Some(delay) = set.join_next().await {
            order.push(delay?);
        }
        assert_eq!(order, [10, 20, 30, 40]);
        io::Result::Ok(())
    })
    .unwrap();
}

#[test]
fn each_of_a_hundred_thousand_tasks_is_returned_once() {
    const TASKS: usize = 100_000;
    run(async {
        let mut set = JoinSet::new();
        for number in 0..TASKS {
            set.spawn(async move {
                for _ in 0..number % 3 {
                    yield_now().await;
                }
                number
            });
        }
        assert_eq!(set.len(), TASKS);
        let mut seen = vec![false; TASKS];
        while let Some(number) = set.join_next().await {
            assert!(!std::mem::replace(&mut seen[number.unwrap()], true), "twice");
        }
        assert!(seen.iter().all(|seen| *seen) && set.is_empty());
        Ok(())
    });
}

#[test]
fn join_next_of_an_empty_set_is_ready_and_of_running_tasks_pending() {
    run(async {
        let mut set = JoinSet::new();
        assert!(set.try_join_next().is_none() && set.join_next().await.is_none());
        set.spawn(async { 1 });
        assert!(set.try_join_next().is_none(), "the task has a result before it ran");
        yield_now().await;
        assert_eq!(set.try_join_next().unwrap().unwrap(), 1);
        assert!(set.join_next().await.is_none());
        // An empty set can be used again.
        set.spawn(async { 2 });
        assert_eq!(set.join_next().await.unwrap().unwrap(), 2);
        Ok(())
    });
}

#[test]
fn a_panic_and_an_abort_are_results() {
    run(async {
        let mut set = JoinSet::new();
        set.spawn(async { resume_unwind(Box::new("only me")) });
        let error = set.join_next().await.unwrap().unwrap_err();
        assert_eq!(error.into_panic().downcast_ref(), Some(&"only me"));
        let aborts = set.spawn(std::future::pending::<()>());
        aborts.abort();
        assert!(set.join_next().await.unwrap().unwrap_err().is_cancelled());
        assert!(aborts.is_finished() && set.is_empty());
        Ok(())
    });
}

#[test]
fn dropping_a_set_aborts_and_detaching_does_not() {
    run(async {
        let (drops, mut set) = (Drops::default(), JoinSet::new());
        (0..100).for_each(|_| drop(set.spawn(hold(drops.counted()))));
        yield_now().await;
        drop(set);
        yield_now().await;
        assert_eq!(drops.count(), 100);

        let (drops, mut set) = (Drops::default(), JoinSet::new());
        let kept = set.spawn(hold(drops.counted()));
        set.detach_all();
        assert!(set.is_empty() && set.join_next().await.is_none());
        set.spawn(async {});
        drop(set);
        yield_now().await;
        assert_eq!(drops.count(), 0, "the detached task was dropped");
        kept.abort();
        yield_now().await;
        assert_eq!(drops.count(), 1);
        Ok(())
    });
}

#[test]
fn shutdown_waits_until_every_future_is_dropped() {
    run(async {
        let (drops, mut set) = (Drops::default(), JoinSet::new());
        (0..100).for_each(|_| drop(set.spawn(hold(drops.counted()))));
        set.shutdown().await;
        assert_eq!((drops.count(), set.len()), (100, 0));
        Ok(())
    });
}

#[test]
fn a_dropped_join_next_loses_nothing() {
    run(async {
        let mut set = JoinSet::new();
        set.spawn(async { yield_now().await });
        assert!(crate::common::touch(set.join_next()).is_none());
        yield_now().await;
        yield_now().await;
        set.join_next().await.unwrap().unwrap();
        Ok(())
    });
}

/// The set wakes the task that polled it last, although another task polled it before.
#[test]
fn a_set_can_move_to_another_task() {
    run(async {
        let mut set = JoinSet::new();
        let (sender, receiver) = tokio::sync::oneshot::channel();
        set.spawn(async { receiver.await.unwrap() });
        assert!(crate::common::touch(set.join_next()).is_none());
        let other = spawn(async move { set.join_next().await.unwrap().unwrap() });
        yield_now().await;
        sender.send(7).unwrap();
        assert_eq!(other.await?, 7);
        Ok(())
    });
}

#[test]
fn join_all_returns_all_or_the_first_panic() {
    run(async {
        let set: JoinSet<_> = (0..10).map(|number| async move { number }).collect();
        assert_eq!(set.join_all().await.iter().sum::<i32>(), 45);
        let panics = spawn(async {
            let mut set = JoinSet::new();
            set.spawn(async { resume_unwind(Box::new(7_u32)) });
            set.spawn(std::future::pending::<()>());
            set.join_all().await;
        });
        assert_eq!(panics.await.unwrap_err().into_panic().downcast_ref(), Some(&7_u32));
        Ok(())
    });
}

#[test]
fn a_set_that_outlives_its_runtime_reports_its_tasks_as_cancelled() {
    let drops = Drops::default();
    let mut runtime = annulus::Runtime::new().unwrap();
    let mut set = runtime.block_on(async {
        let mut set = JoinSet::new();
        set.spawn(hold(drops.counted()));
        set
    });
    drop(runtime);
    assert_eq!(drops.count(), 1);
    let error = run(async { Ok(set.join_next().await.unwrap().unwrap_err()) });
    assert!(error.is_cancelled());
}
