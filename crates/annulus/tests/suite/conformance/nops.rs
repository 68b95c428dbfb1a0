//! `nop`, the smallest operation of a driver.

use annulus::internals::nop;
use annulus::spawn;
use annulus::time::timeout;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

pub(crate) async fn a_thousand_tasks_do_nops_at_once() -> io::Result<()> {
    let tasks: Vec<_> = (0..1000)
        .map(|n| {
            spawn(async move {
                for _ in 0..n % 5 {
                    nop().await?;
                }
                nop().await.map(|()| n)
            })
        })
        .collect();
    for (n, task) in tasks.into_iter().enumerate() {
        assert_eq!(task.await.expect("the task panicked")?, n);
    }
    Ok(())
}

/// Nops are dropped unpolled, pending and done, and their slots are reused.
pub(crate) async fn dropped_nops_leave_nothing() -> io::Result<()> {
    for _ in 0..100 {
        drop(nop());
        let mut pending = Box::pin(nop());
        assert!(pending.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let mut done = Box::pin(nop());
        assert!(done.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        drop(pending);
        nop().await?;
        drop(done);
    }
    Ok(())
}

/// The task that polled last is woken.
pub(crate) async fn a_nop_follows_its_future() -> io::Result<()> {
    let mut moved = Box::pin(nop());
    assert!(moved.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let task = spawn(moved);
    let answer = timeout(Duration::from_secs(60), pin!(task)).await;
    answer.expect("the task was not woken").expect("the task panicked")
}
