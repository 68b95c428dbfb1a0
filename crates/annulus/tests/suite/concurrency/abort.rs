use crate::common::run;
use crate::concurrency::{Drops, hold};
use annulus::task::{AbortHandle, JoinError, JoinHandle, yield_now};
use annulus::{Runtime, spawn};
use std::io;
use std::rc::Rc;

#[test]
fn a_handle_aborts_by_reference_and_from_another_thread() {
    run(async {
        let drops = Drops::default();
        let task = Rc::new(spawn(hold(drops.counted())));
        task.abort();
        task.abort();
        yield_now().await;
        assert!(task.is_finished() && drops.count() == 1);

        let task = spawn(hold(drops.counted()));
        let aborts = task.abort_handle();
        assert!(!aborts.is_finished());
        let thread = std::thread::spawn(move || {
            aborts.abort();
            aborts
        });
        assert!(task.await.unwrap_err().is_cancelled());
        assert!(thread.join().unwrap().is_finished() && drops.count() == 2);
        Ok(())
    });
}

#[test]
fn a_task_that_finishes_before_its_abort_keeps_its_result() {
    run(async {
        let task = spawn(async { 1 });
        let aborts = task.abort_handle();
        yield_now().await;
        assert!(aborts.is_finished());
        aborts.abort();
        task.abort();
        assert_eq!(task.await.unwrap(), 1);
        Ok(())
    });
}

/// The handle keeps the task's memory, not its future, and outlives both task and runtime.
#[test]
fn an_abort_after_the_end_of_the_runtime_does_nothing() {
    let drops = Drops::default();
    let mut runtime = Runtime::new().unwrap();
    let aborts = runtime.block_on(async { spawn(hold(drops.counted())).abort_handle() });
    assert!(!aborts.is_finished());
    drop(runtime);
    assert!(aborts.is_finished() && drops.count() == 1);
    aborts.abort();
}

#[test]
fn errors_convert_to_error_types_of_other_libraries() {
    fn is_shared<T: Send + Sync + 'static>() {}
    is_shared::<JoinError>();
    is_shared::<AbortHandle>();
    run(async {
        let task: JoinHandle<io::Result<u32>> = spawn(async { panic!("on purpose") });
        let error = async { task.await? }.await.unwrap_err();
        assert_eq!(error.to_string(), "the task panicked: on purpose");
        let cancelled = spawn(std::future::pending::<()>());
        cancelled.abort();
        let error = cancelled.await.unwrap_err();
        assert!(error.is_cancelled() && !error.is_panic() && error.try_into_panic().is_err());
        Ok(())
    });
}
