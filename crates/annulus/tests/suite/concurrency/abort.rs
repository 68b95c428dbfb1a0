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

#[test]
fn a_cancellation_says_why_there_is_no_result() {
    let mut runtime = Runtime::new().unwrap();
    let text = |joined: Result<(), JoinError>| joined.unwrap_err().to_string();
    let (task, handle) = runtime.block_on(async {
        let aborted = spawn(std::future::pending::<()>());
        aborted.abort();
        assert_eq!(text(aborted.await), "the task was aborted");
        (spawn(std::future::pending::<()>()), annulus::handle().unwrap())
    });
    drop(runtime);
    run(async {
        assert_eq!(text(task.await), "the runtime ended before the task");
        assert!(handle.spawn(async {}).is_err());
        Ok(())
    });
}

#[test]
fn a_second_result_of_a_handle_is_an_error_that_says_so() {
    run(async {
        let mut task = spawn(async { 1 });
        assert_eq!((&mut task).await.unwrap(), 1);
        assert!(task.is_finished());
        let text = task.await.unwrap_err().to_string();
        assert_eq!(text, "the result of the task has already been taken");
        Ok(())
    });
}
