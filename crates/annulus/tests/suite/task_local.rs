//! Values that belong to a task.

use annulus::task::LocalKey;
use annulus::task::yield_now;
use annulus::{spawn, task_local};
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

task_local! {
    /// A number.
    static NUMBER: u32;
    pub(crate) static TEXT: String
}

async fn number() -> u32 {
    yield_now().await;
    NUMBER.get()
}

#[test]
fn each_task_has_its_own_value() {
    annulus::run(async {
        let tasks: Vec<_> = (0..20)
            .map(|n| {
                spawn(NUMBER.scope(n, async move {
                    for _ in 0..n {
                        assert_eq!(number().await, n);
                    }
                    // A spawned task does not inherit the value.
                    assert!(spawn(async { NUMBER.try_get() }).await.unwrap().is_err());
                    let call = annulus::task::spawn_blocking(|| NUMBER.try_get().is_err());
                    assert!(call.await.unwrap());
                    number().await
                }))
            })
            .collect();
        for (n, task) in (0..).zip(tasks) {
            assert_eq!(task.await.unwrap(), n);
        }
        let error = NUMBER.try_get().unwrap_err();
        assert!(error.to_string().contains("LocalKey::scope"), "{error}");
    });
}

#[test]
fn inner_scopes_hide_the_values_of_outer_ones() {
    annulus::run(NUMBER.scope(1, async {
        let inner = NUMBER.scope(
            2,
            TEXT.scope("text".to_owned(), async {
                assert_eq!((number().await, TEXT.with(String::len)), (2, 4));
                NUMBER.sync_scope(3, || assert_eq!(NUMBER.get(), 3));
                NUMBER.get()
            }),
        );
        assert_eq!(inner.await, 2);
        assert_eq!(number().await, 1);
        assert!(TEXT.try_with(|_| ()).is_err());
    }));
}

/// Reports the value when it is dropped.
struct Drops(Rc<RefCell<Vec<Option<u32>>>>);

impl Drop for Drops {
    fn drop(&mut self) {
        self.0.borrow_mut().push(NUMBER.try_get().ok());
    }
}

#[test]
fn the_future_is_dropped_within_the_scope() {
    let seen = Rc::new(RefCell::new(Vec::new()));
    let mut cx = Context::from_waker(Waker::noop());
    // When it is ready.
    let drops = Drops(seen.clone());
    let mut scope = pin!(NUMBER.scope(1, async move { drop(drops) }));
    assert!(scope.as_mut().poll(&mut cx).is_ready());
    assert_eq!(scope.as_mut().take_value(), Some(1));
    assert_eq!(scope.take_value(), None);
    // Before it is ready, and before it was polled.
    let drops = Drops(seen.clone());
    let mut scope = Box::pin(NUMBER.scope(2, async move {
        let _drops = drops;
        std::future::pending::<()>().await;
    }));
    assert!(scope.as_mut().poll(&mut cx).is_pending());
    drop(scope);
    let drops = Drops(seen.clone());
    drop(NUMBER.scope(3, async move { drop(drops) }));
    assert_eq!(*seen.borrow(), [Some(1), Some(2), Some(3)]);
}

#[test]
fn panics_restore_the_outer_value() {
    let panics = || NUMBER.sync_scope(2, || panic!("as requested"));
    NUMBER.sync_scope(1, || {
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        assert_eq!(NUMBER.get(), 1);
    });
    let scope = pin!(NUMBER.scope(4, poll_fn(|_| -> Poll<()> { panic!("as requested") })));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(catch_unwind(AssertUnwindSafe(|| scope.poll(&mut cx))).is_err());
    assert!(NUMBER.try_get().is_err());
}

fn panic_text(call: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(call)).expect_err("it has not panicked");
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap()
}

#[test]
fn misuse_panics_with_the_reason() {
    let key: &'static LocalKey<u32> = &NUMBER;
    assert!(panic_text(|| _ = key.get()).contains("outside of its scope"));
    let nested = || key.sync_scope(1, || key.with(|_| key.sync_scope(2, || ())));
    assert!(panic_text(nested).contains("within `with` on the same key"));
    assert!(key.try_get().is_err());
}
