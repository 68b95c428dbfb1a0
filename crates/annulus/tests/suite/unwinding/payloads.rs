//! Panics whose payload panics when it is dropped.

use crate::common::pair;
use crate::unwinding::foreign::{Bomb, Count, PanicsOnDrop};
use crate::unwinding::mode::everywhere;
use annulus::spawn;
use annulus::task::yield_now;
use std::future::pending;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind};

#[test]
fn a_task_may_panic_with_anything() {
    everywhere(|mut stage| {
        stage.play(async {
            drop(spawn(async { panic_any(Bomb) }));
            // The task's result is dropped unclaimed, once with a handle and once without.
            let finished = spawn(async { PanicsOnDrop::default() });
            drop(spawn(async { PanicsOnDrop::default() }));
            yield_now().await;
            yield_now().await;
            assert!(finished.is_finished());
            drop(finished);
            let (mut one, mut other) = pair().await?;
            one.send("goes on").await?;
            assert_eq!(other.recv().await?.as_deref(), Some(&b"goes on"[..]));
            Ok(())
        });
        stage.end();
    });
}

#[test]
fn drops_of_tasks_may_panic_with_anything() {
    everywhere(|mut stage| {
        let count = Count::default();
        stage.play(async {
            let aborted = spawn(hold(PanicsOnDrop(count.clone())));
            for _ in 0..3 {
                spawn(hold(PanicsOnDrop(count.clone())));
            }
            yield_now().await;
            aborted.abort();
            yield_now().await;
            yield_now().await;
            assert_eq!(count.get(), 1);
            Ok(())
        });
        stage.end();
        assert_eq!(count.get(), 4);
    });
}

async fn hold(value: PanicsOnDrop) {
    pending::<()>().await;
    drop(value);
}

/// The runtime ends while the thread is already unwinding. A panic that escaped would abort the
/// process.
#[test]
fn a_panicking_root_ends_its_runtime_cleanly() {
    everywhere(|stage| {
        let count = Count::default();
        let (mut runtime, sim) = stage.into_parts();
        let counted = count.clone();
        let ended = catch_unwind(AssertUnwindSafe(move || {
            runtime.block_on(async {
                let (mut one, other) = pair().await.unwrap();
                spawn(hold(PanicsOnDrop(counted.clone())));
                spawn(hold(PanicsOnDrop(counted)));
                one.send(vec![1; 100_000]).await.unwrap();
                yield_now().await;
                let _other = other;
                panic!("the root's own");
            });
        }));
        let payload = ended.unwrap_err();
        assert_eq!(payload.downcast_ref::<&str>(), Some(&"the root's own"));
        assert_eq!(count.get(), 2);
        crate::unwinding::mode::nothing_left(sim.as_deref());
    });
}

/// The payload of a panic reaches the task's joiner, who can resume the panic.
#[test]
fn a_payload_reaches_its_joiner() {
    everywhere(|mut stage| {
        stage.play(async {
            let payload = spawn(async { panic_any(7_u32) }).await.unwrap_err().try_into_panic();
            let payload = payload.expect("the task did not panic");
            let again = catch_unwind(AssertUnwindSafe(|| resume_unwind(payload)));
            assert_eq!(again.unwrap_err().downcast_ref::<u32>(), Some(&7));
            Ok(())
        });
        stage.end();
    });
}
