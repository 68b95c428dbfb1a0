use crate::common::{run, touch};
use crate::concurrency::{Drops, hold};
use annulus::task::{Scope, scope};
use annulus::{spawn, yield_now};
use std::pin::pin;

/// Spawns a chain of tasks, each by the one before.
fn chain(scope: &Scope, drops: Drops, left: usize) {
    let inner = scope.clone();
    scope.spawn(async move {
        let _counted = drops.counted();
        yield_now().await;
        if left > 1 {
            chain(&inner, drops.clone(), left - 1);
        }
    });
}

#[test]
fn it_ends_when_the_last_task_has_also_those_that_tasks_have_spawned() {
    run(async {
        let drops = Drops::default();
        let result = scope(async |scope| {
            chain(&scope, drops.clone(), 100);
            "the body's own"
        })
        .await;
        assert_eq!((result, drops.count()), ("the body's own", 100));
        Ok(())
    });
}

#[test]
fn a_scope_without_tasks_ends_with_its_body() {
    run(async {
        assert_eq!(scope(async |scope| scope.len()).await, 0);
        Ok(())
    });
}

#[test]
fn handles_return_results_and_panics() {
    run(async {
        let sum = scope(async |scope| {
            let (one, two) = (scope.spawn(async { 1 }), scope.spawn(async { 2 }));
            let panics = scope.spawn(async { std::panic::resume_unwind(Box::new("only me")) });
            assert!(panics.await.unwrap_err().is_panic());
            one.await.unwrap() + two.await.unwrap()
        });
        assert_eq!(sum.await, 3);
        Ok(())
    });
}

#[test]
fn dropping_it_aborts_its_tasks() {
    run(async {
        let drops = Drops::default();
        {
            let waits = pin!(scope(async |scope| {
                (0..10).for_each(|_| drop(scope.spawn(hold(drops.counted()))));
            }));
            assert!(touch(waits).is_none(), "its tasks do not end");
            assert_eq!(drops.count(), 0);
        }
        yield_now().await;
        assert_eq!(drops.count(), 10);
        Ok(())
    });
}

#[test]
fn a_panic_of_the_body_aborts_its_tasks() {
    run(async {
        let drops = Drops::default();
        let counted = drops.counted();
        let panics = spawn(scope(async move |scope| {
            scope.spawn(hold(counted));
            yield_now().await;
            std::panic::resume_unwind(Box::new("the body's"));
        }));
        let error = panics.await.map(|()| "no panic").unwrap_err();
        assert_eq!(error.into_panic().downcast_ref(), Some(&"the body's"));
        yield_now().await;
        assert_eq!(drops.count(), 1);
        Ok(())
    });
}

#[test]
fn abort_all_ends_the_scope() {
    run(async {
        let drops = Drops::default();
        scope(async |scope| {
            (0..10).for_each(|_| drop(scope.spawn(hold(drops.counted()))));
            yield_now().await;
            scope.abort_all();
        })
        .await;
        assert_eq!(drops.count(), 10);
        Ok(())
    });
}

#[test]
fn a_task_spawned_after_the_end_is_aborted() {
    run(async {
        let late = scope(async |scope| scope).await;
        let error = late.spawn(async { panic!("it runs") }).await.map(|()| "no error").unwrap_err();
        assert!(error.is_cancelled());
        Ok(())
    });
}
