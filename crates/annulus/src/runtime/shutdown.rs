//! The end of a runtime, in this order: tasks are dropped; queued sends and writes are drained
//! within the shutdown timeout; the state is taken out, so that handles fail; operations in flight
//! are cancelled and waited for; the ring is closed; memory is freed. Any time left of the shutdown
//! timeout then goes to blocking calls that have begun.
//!
//! Memory that the kernel may use is freed only here. It leaks if operations did not end in time,
//! if a panic has interrupted the loop's own code, or if the end itself unwinds.
#![allow(unsafe_code)]

use super::core::{Core, Inner};
use crate::runtime::current;
use crate::slots::custom_ops::CustomOps;
use crate::slots::loop_state::KernelHeld;
use crate::tasks::RootWaker;
use crate::timers::Instant;
use crate::unwind::{dispose, wake_each};
use std::cell::RefCell;
use std::future::Future;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread::panicking;
use std::time::Duration;

/// Time that cancelled operations have to end.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(2);

impl Core {
    pub(crate) fn end_in_order(self: &Rc<Self>, timeout: Duration) {
        self.remote.close();
        self.run_queue.close();
        // Fails if this runtime is dropped inside another one that runs on this thread, or as the
        // thread ends. Its tasks are then dropped anyway, but cannot start operations.
        let current_guard = current::set_current(self);
        self.blocking.pool.close();
        let deadline = self.now() + timeout;
        let whole = self.check_not_broken().is_ok();
        let ended = catch_unwind(AssertUnwindSafe(|| self.wind_down(deadline)));
        // If `wind_down` has unwound, the state may still be present. It then leaks.
        _ = self.take_inner();
        self.run_queue.drop_all(|| self.remote.finish());
        drop(current_guard);
        self.blocking.pool.wait(deadline.duration_since(self.now()));
        match ended {
            // Panics of foreign code are contained, so this panic is a bug: resume it. Do not if an
            // earlier panic has already broken the runtime, or while the thread unwinds, because a
            // second panic would then abort the process.
            Err(panic) if whole && !panicking() => resume_unwind(panic),
            Err(panic) => dispose(panic),
            Ok(()) => {}
        }
    }

    fn wind_down(&self, deadline: Instant) {
        self.last_writes.open();
        self.drop_remains();
        if self.check_not_broken().is_ok() {
            self.drain(deadline);
        }
        self.last_writes.close();
        let Some(mut inside) = self.take_inner() else { return };
        // A host's tasks outlive the runtime and must learn that it has ended.
        wake_each(inside.all_waiting());
        inside.stop_everything();
        let drained = self.reap(&mut inside, deadline) && self.check_not_broken().is_ok();
        self.kept.borrow_mut().extend(inside.state.take_kept());
        if let Some(ended_ops) = inside.close(drained) {
            self.ended_ops.replace(ended_ops);
            self.over.set(true);
        }
    }

    /// Runs turns until everything queued has been sent or written, up to the deadline.
    fn drain(&self, deadline: Instant) {
        let flag = Arc::new(RootWaker::new(self.remote.clone()));
        let waker = Waker::from(flag.clone());
        loop {
            flag.take();
            let written = self.last_writes.poll(&mut Context::from_waker(&waker));
            if written && !self.borrow().is_ok_and(|mut inner| !inner.all_sent_out()) {
                return;
            }
            let left = deadline.duration_since(self.now());
            let has_started_all =
                self.borrow().is_ok_and(|inner| inner.state.driver.has_started_all());
            let hurry = flag.is_woken() || !has_started_all;
            if left.is_zero() || self.turn(hurry, Some(left)).is_err() {
                return;
            }
            self.drop_remains();
        }
    }

    /// Runs turns until nothing is in flight. Returns false if that takes too long. Once only file
    /// calls that may hang are left, the shutdown timeout applies as well, because they may never
    /// end. Handles no longer reach the state.
    fn reap(&self, inside: &mut Inner, shutdown: Instant) -> bool {
        let end = inside.state.now() + CANCEL_TIMEOUT;
        loop {
            wake_each(mem::take(&mut inside.state.deferred.wakes));
            mem::take(&mut inside.state.deferred).discard();
            self.drop_remains();
            if inside.is_over() {
                return true;
            }
            let deadline = if inside.only_hangs() { end.min(shutdown) } else { end };
            let left = deadline.duration_since(inside.state.now());
            let hurry = !inside.state.driver.has_started_all();
            if left.is_zero()
                || inside.turn(hurry, false, Some(left), &self.remote, &self.recorder).is_err()
            {
                return false;
            }
        }
    }

    fn now(&self) -> Instant {
        Instant::since_origin(self.kernel.now())
    }

    /// Drops all tasks, including finished ones that later wakes have queued.
    fn drop_remains(&self) {
        self.run_queue.drop_all(|| self.remote.take());
    }
}

impl Inner {
    fn all_sent_out(&mut self) -> bool {
        self.streams.all_sent() && self.datagrams.all_sent()
    }

    /// Returns true if nothing is in flight and the driver has started everything that was queued.
    fn is_over(&mut self) -> bool {
        self.state.in_flight == 0
            && !self.has_unconfirmed_sends()
            && self.state.driver.has_started_all()
    }

    /// Returns true if only file calls that may hang are left.
    fn only_hangs(&mut self) -> bool {
        let hanging = self.file_ops.hanging();
        hanging == self.state.in_flight
            && !self.has_unconfirmed_sends()
            && self.state.driver.has_started_all()
    }

    /// Cancels everything in flight. Handles that outlive the runtime then get errors.
    fn stop_everything(&mut self) {
        self.state.keep_exposed();
        self.streams.stop_all(&mut self.state);
        self.listeners.stop_all(&mut self.state);
        self.connects.stop_all(&mut self.state);
        self.file_ops.stop_all(&mut self.state);
        self.custom_ops.stop_all(&mut self.state);
        self.polls.stop_all(&mut self.state);
        self.datagrams.stop_all(&mut self.state);
    }
}

impl KernelHeld<Inner> {
    /// Closes the driver. If the kernel certainly no longer uses the memory, frees everything
    /// except the results of operations that programs define, and returns these.
    fn close(mut self, drained: bool) -> Option<CustomOps> {
        mem::take(&mut self.state.deferred).discard();
        self.state.timers.drain().for_each(dispose);
        let pools = (self.state.driver.pool().clone(), self.state.driver.datagram_pool().cloned());
        let pools = KernelHeld::new(pools);
        // SAFETY: operations refer to memory that stays held here, not in the driver, and the
        // driver is not used after this.
        let driver = unsafe { self.state.driver.take() };
        if driver.close().is_err() || !drained {
            return None;
        }
        let ended_ops = mem::take(&mut self.custom_ops);
        // SAFETY: every operation has had its terminal event, and closing the ring has unregistered
        // the buffers.
        let freed = unsafe { (self.open(), pools.open()) };
        dispose(freed);
        Some(ended_ops)
    }
}

type Write = Pin<Box<dyn Future<Output = ()>>>;

/// Writes whose tasks were dropped by the end of the runtime. `None` unless the runtime is ending.
#[derive(Default)]
pub(crate) struct LastWrites(RefCell<Option<Vec<Write>>>);

impl LastWrites {
    /// Accepts writes from now on.
    pub(super) fn open(&self) {
        *self.0.borrow_mut() = Some(Vec::new());
    }

    /// Gives up on the remaining writes.
    pub(super) fn close(&self) {
        drop(self.0.take());
    }

    fn push(&self, write: Write) {
        if let Some(writes) = &mut *self.0.borrow_mut() {
            writes.push(write);
        }
    }

    /// Polls all writes. Returns true if none are left.
    pub(super) fn poll(&self, cx: &mut Context<'_>) -> bool {
        let mut writes = self.0.borrow_mut().as_mut().map(mem::take).unwrap_or_default();
        writes.retain_mut(|write| write.as_mut().poll(cx).is_pending());
        let all_done = writes.is_empty();
        writes.into_iter().for_each(|write| self.push(write));
        all_done
    }
}

/// A queued write that runs as a task. If the end of the runtime drops the task, the write is still
/// polled until it completes or the shutdown timeout expires.
pub(crate) struct QueuedWrite<F: Future + 'static> {
    core: Rc<Core>,
    /// `None` once the write is done.
    write: Option<Pin<Box<F>>>,
}

impl<F: Future + 'static> QueuedWrite<F> {
    pub(crate) fn new(core: Rc<Core>, write: F) -> Self {
        Self { core, write: Some(Box::pin(write)) }
    }
}

impl<F: Future + 'static> Future for QueuedWrite<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let write = self.write.as_mut().expect("polled after completion");
        let polled = write.as_mut().poll(cx);
        if polled.is_ready() {
            self.write = None;
        }
        polled
    }
}

impl<F: Future + 'static> Drop for QueuedWrite<F> {
    fn drop(&mut self) {
        if let Some(write) = self.write.take() {
            self.core.last_writes.push(Box::pin(async move { _ = write.await }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::TcpListener;
    use crate::task::yield_now;
    use crate::{DriverChoice, Runtime, spawn};
    use annulus_driver::Pool;
    use std::future::pending;
    use std::rc::Weak;
    use std::task::{Context, Poll, Waker};

    fn pool(runtime: &Runtime) -> Weak<Pool> {
        Rc::downgrade(runtime.core().borrow().unwrap().state.driver.pool())
    }

    /// Makes the next turn look for a datagram socket that does not exist, and panic.
    fn break_next_turn(runtime: &Runtime) {
        runtime.core().borrow().unwrap().datagrams.break_next_turn();
    }

    fn panics(f: impl FnOnce()) -> bool {
        catch_unwind(AssertUnwindSafe(f)).is_err()
    }

    #[test]
    fn orderly_shutdown_frees_the_memory() {
        let runtime = Runtime::new().unwrap();
        let pool = pool(&runtime);
        drop(runtime);
        assert_eq!(pool.strong_count(), 0);
    }

    /// The memory would leak if the operation did not end in time.
    #[test]
    fn shutdown_cancels_accept_in_flight_and_frees_the_memory() {
        for driver in [DriverChoice::Auto, DriverChoice::Epoll] {
            let mut runtime = Runtime::builder().driver(driver).build().unwrap();
            let pool = pool(&runtime);
            runtime.block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                drop(spawn(async move { listener.accept().await.map(drop) }));
                yield_now().await;
                yield_now().await;
            });
            assert!(runtime.waiting()[0].contains("to accept"), "{:?}", runtime.waiting());
            drop(runtime);
            assert_eq!(pool.strong_count(), 0, "{driver}");
        }
    }

    #[test]
    fn panic_in_the_loop_leaks_memory_the_kernel_may_use() {
        let mut runtime = Runtime::new().unwrap();
        let pool = pool(&runtime);
        runtime.block_on(async {});
        break_next_turn(&runtime);
        assert!(panics(|| runtime.block_on(async {})));
        let refused = runtime.try_block_on(async {}).unwrap_err().to_string();
        assert!(refused.contains("interrupted"), "{refused}");
        assert!(!panics(|| drop(runtime)), "the drop reported the panic a second time");
        assert!(pool.strong_count() > 0, "the memory was freed");
        Runtime::new().unwrap().block_on(async {});
    }

    #[test]
    fn panic_during_shutdown_leaks_memory_the_kernel_may_use() {
        let mut runtime = Runtime::new().unwrap();
        let (pool, handle) = (pool(&runtime), runtime.handle());
        let mut tasks = runtime.block_on(async { [spawn(pending::<()>())] });
        break_next_turn(&runtime);
        assert!(panics(|| drop(runtime)), "the bug was not reported");
        assert!(pool.strong_count() > 0, "the memory was freed");
        // Even so, shutdown has refused new tasks and cancelled the spawned one.
        assert!(handle.spawn(async {}).is_err());
        let joined =
            std::pin::Pin::new(&mut tasks[0]).poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(joined, Poll::Ready(Err(error)) if error.is_cancelled()));
        Runtime::new().unwrap().block_on(async {});
    }

    #[test]
    fn panic_during_shutdown_while_unwinding_does_not_abort() {
        let runtime = Runtime::new().unwrap();
        let pool = pool(&runtime);
        break_next_turn(&runtime);
        let unwound = catch_unwind(AssertUnwindSafe(move || {
            let _runtime = runtime;
            panic!("the first");
        }));
        assert_eq!(unwound.unwrap_err().downcast_ref::<&str>(), Some(&"the first"));
        assert!(pool.strong_count() > 0, "the memory was freed");
    }
}
