//! A task's memory, one allocation that begins with its head, and counted pointers to it.
//!
//! A task's *owner* is the thread of the runtime that it was spawned on. Only the owner uses the
//! future and the head's cells. The remote flags, the join state and the constants are shared by
//! all threads. Until a task has reached its runtime, the spawning thread counts as the owner. The
//! memory is freed with the last reference; the future and the result are dropped before that.
#![allow(unsafe_code)]

use super::join::{Cancelled, Id, JoinState, Outcome};
use super::refs::{Refs, RemoteFlags};
use super::run_queue::{self, is_owner};
use crate::tasks::remote::Remote;
use crate::trace::{TaskSpan, in_span};
use crate::unwind::{Panic, dispose_each};
use std::cell::{Cell, UnsafeCell};
use std::future::Future;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, Location, RefUnwindSafe, UnwindSafe, catch_unwind};
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker, ready};
use std::time::Duration;

/// The state of a task. Only its owner reads and changes it.
///
/// A task is *new* until the owner has linked it into the list of live tasks, which also queues it.
/// A *queued* task is in the run queue, once; a wake then changes nothing. While the owner polls
/// it, it is *running*. A wake during the poll makes it *notified*. After the poll it is *done* if
/// its future has completed or panicked, *queued* again if it was notified, and otherwise
/// *waiting*, until a wake queues it. An abort or the end of the runtime drops its future in any
/// state but running, and then it is *done*. While the future is being dropped the task counts as
/// running, so a wake from the drop does not queue it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum TaskState {
    New,
    Waiting,
    Queued,
    Running,
    Notified,
    Done,
}

/// The part that is the same for all tasks.
struct Head {
    /// The references held by all threads. The memory is freed with the last one.
    refs: Refs,
    /// Set by other threads: the task is in the inbox, or has been aborted.
    remote_flags: RemoteFlags,
    /// Used only by the owner.
    state: Cell<TaskState>,
    /// The index in the list of live tasks. Used only by the owner.
    index: Cell<u32>,
    /// The number of polls. The next field is the time of the last one in nanoseconds, or 0 if
    /// there was none. Used only by the owner.
    polls: Cell<u64>,
    polled_at: Cell<u64>,
    /// The runtime's inbox, through which other threads wake the task.
    remote: Arc<Remote>,
    spawned_at: &'static Location<'static>,
    /// The span of the feature `tracing`; empty without that feature.
    span: TaskSpan,
    /// The functions that know the types of the future and its result.
    vtable: &'static Vtable,
}

/// A head, and the part that depends only on the type of the result.
#[repr(C)]
struct Joinable<T> {
    head: Head,
    join_state: JoinState<T>,
}

impl<T> Joinable<T> {
    /// Drops a result that no join handle will take. A panic is reported to the runtime.
    #[inline]
    fn discard(&self, outcome: Option<Outcome<T>>) {
        if let Some(panic) = outcome.and_then(Outcome::into_panic) {
            self.head.remote.record_unhandled_panic(panic, self.head.spawned_at);
        }
    }
}

/// A whole task. It begins with its head, so a pointer to one is a pointer to the other.
#[repr(C)]
struct Task<F: Future> {
    joinable: Joinable<F::Output>,
    /// Never moved; `None` once the task is done. Used only by the owner.
    future: UnsafeCell<Option<F>>,
}

/// The functions that depend on the future's type. Each takes a pointer to a live task of the type
/// that the table was created for.
struct Vtable {
    /// Polls the future. Returns true if it is done and its result is in the join state. Call this
    /// only on the owner's thread, and not while the task runs.
    poll: unsafe fn(NonNull<Head>, &mut Context<'_>) -> bool,
    /// Drops the future. Call this only on the owner's thread, and not while the task runs.
    cancel: unsafe fn(NonNull<Head>),
    /// Frees the memory. Call this only with the last reference.
    free: unsafe fn(NonNull<Head>),
}

impl<F: Future> Task<F> {
    const VTABLE: Vtable = Vtable { poll: Self::poll, cancel: Self::cancel, free: Self::free };

    unsafe fn poll(task: NonNull<Head>, cx: &mut Context<'_>) -> bool {
        // SAFETY: by the contract of `Vtable` this is a live task of this type.
        let task = unsafe { task.cast::<Self>().as_ref() };
        // SAFETY: by the contract of `Vtable` this is the owner's thread, and no other reference to
        // the future exists.
        let Poll::Ready(outcome) = poll_future(unsafe { task.future() }, cx) else { return false };
        task.joinable.discard(task.joinable.join_state.complete(Some(outcome)));
        true
    }

    unsafe fn cancel(task: NonNull<Head>) {
        // SAFETY: by the contract of `Vtable` this is a live task of this type.
        let task = unsafe { task.cast::<Self>().as_ref() };
        // SAFETY: by the contract of `Vtable` this is the owner's thread, and no other reference to
        // the future exists.
        let panic = drop_future(unsafe { task.future() });
        _ = task.joinable.join_state.complete(panic.map(Outcome::panicked));
    }

    unsafe fn free(task: NonNull<Head>) {
        // SAFETY: `make` boxed the task, and by the contract of `Vtable` this is the last
        // reference.
        drop(unsafe { Box::from_raw(task.cast::<Self>().as_ptr()) });
    }

    /// # Safety
    /// Must be called on the owner's thread, and not while another reference to the future exists.
    #[allow(clippy::mut_from_ref)]
    unsafe fn future(&self) -> Pin<&mut Option<F>> {
        // SAFETY: by the contract of this function this is the only reference, and the future is
        // not moved before it is dropped.
        unsafe { Pin::new_unchecked(&mut *self.future.get()) }
    }
}

/// Polls a task's future, and drops it once it is ready or has panicked.
#[inline]
fn poll_future<F: Future>(
    mut slot: Pin<&mut Option<F>>,
    cx: &mut Context<'_>,
) -> Poll<Outcome<F::Output>> {
    let future = slot.as_mut().as_pin_mut().expect("a finished task was polled");
    let outcome = match catch_unwind(AssertUnwindSafe(|| future.poll(cx))) {
        Ok(poll) => Ok(ready!(poll)),
        Err(panic) => Err(panic),
    };
    dispose_each(drop_future(slot));
    Poll::Ready(Outcome::new(outcome))
}

/// Drops a task's future. Returns the panic if the drop panics.
fn drop_future<F>(mut slot: Pin<&mut Option<F>>) -> Option<Panic> {
    catch_unwind(AssertUnwindSafe(|| slot.set(None))).err()
}

/// Creates a task. Returns one reference for the owner's list and one for the join handle.
///
/// # Safety
/// Must be called on the thread that owns the remote, unless the future is `Send` and the task is
/// pushed to that remote, or cancelled, before any other use.
pub(crate) unsafe fn make<F>(
    future: F,
    remote: Arc<Remote>,
    spawned_at: &'static Location<'static>,
) -> (TaskRef, JoinRef<F::Output>)
where
    F: Future + 'static,
{
    let (future, span) = in_span(future, spawned_at);
    let head = Head {
        refs: Refs::new(2),
        remote_flags: RemoteFlags::new(),
        state: Cell::new(TaskState::New),
        index: Cell::new(0),
        polls: Cell::new(0),
        polled_at: Cell::new(0),
        remote,
        spawned_at,
        span,
        vtable: vtable(&future),
    };
    let joinable = Joinable { head, join_state: JoinState::new() };
    let task = Box::new(Task { joinable, future: UnsafeCell::new(Some(future)) });
    // The pointer is to the whole box, so all parts of the task may be accessed through it.
    let task = NonNull::from(Box::leak(task)).cast();
    (TaskRef(task), JoinRef { task: TaskRef(task), _result: PhantomData })
}

/// Returns the functions for tasks with futures of this type, which may be unnameable.
fn vtable<F: Future>(_: &F) -> &'static Vtable {
    &Task::<F>::VTABLE
}

/// Creates a task and sends it to the runtime with the inbox `remote`. If that runtime has ended,
/// the future is dropped here.
pub(crate) fn send<F>(
    future: F,
    remote: &Arc<Remote>,
    spawned_at: &'static Location<'static>,
) -> JoinRef<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    // SAFETY: the future is `Send`, and the next lines push the task or cancel it.
    let (task, link) = unsafe { make(future, remote.clone(), spawned_at) };
    if let Err(task) = remote.push(task) {
        // SAFETY: the owner has not taken the task and never will, so this thread counts as the
        // owner.
        unsafe { task.owned() }.cancel();
    }
    link
}

/// A counted reference to a task, usable on any thread.
pub(crate) struct TaskRef(NonNull<Head>);

// SAFETY: safe methods use only the parts that all threads share (see the module). The owner's
// parts are reached only through `owned`, which must be called on the owner's thread. The reference
// count uses its owner's cell only if `is_owner` returned true.
unsafe impl Send for TaskRef {}
// SAFETY: through a shared reference, safe methods use only the parts that all threads share. They
// use the owner's cell of the reference count only if `is_owner` returned true.
unsafe impl Sync for TaskRef {}

// A panic leaves no state broken: panics of the future are caught, and no other part of a task runs
// foreign code.
impl UnwindSafe for TaskRef {}
impl RefUnwindSafe for TaskRef {}

impl TaskRef {
    /// Wakes the task, from any thread.
    #[inline]
    pub(crate) fn wake(self) {
        if is_owner(&self.head().remote) {
            // SAFETY: this is the owner's thread.
            if unsafe { self.owned() }.notify() {
                run_queue::push_on_this_thread(self);
            }
        } else if self.head().remote_flags.mark_in_inbox() {
            let remote = self.head().remote.clone();
            // The push fails only after the end of the runtime, when every task is done.
            _ = remote.push(self);
        }
    }

    /// Ends the task before it runs again. Can be called on any thread.
    pub(crate) fn abort(self) {
        self.head().remote_flags.abort();
        self.wake();
    }

    /// Returns true if the task is done. Threads other than the owner's may see this late.
    pub(crate) fn is_done(&self) -> bool {
        self.head().refs.is_returned()
    }

    pub(crate) fn waker(&self) -> Waker {
        self.head().span.waker("waker.clone");
        // SAFETY: the raw waker holds the clone's reference, and its functions keep the contract of
        // `RawWaker`.
        unsafe { Waker::from_raw(self.clone().into_raw()) }
    }

    pub(crate) fn spawned_at(&self) -> &'static Location<'static> {
        self.head().spawned_at
    }

    #[inline]
    pub(crate) fn id(&self) -> Id {
        Id::at(self.0.as_ptr().addr())
    }

    /// Records that the owner has taken the task out of the inbox. The next wake from another
    /// thread puts it there again.
    pub(crate) fn leave_inbox(&self) {
        self.head().remote_flags.leave_inbox();
    }

    /// Returns access to the owner's parts of the task.
    ///
    /// # Safety
    /// Must be called on the owner's thread, or before the owner knows the task.
    #[inline]
    pub(crate) unsafe fn owned(&self) -> Owned<'_> {
        Owned { task: self, _not_send: PhantomData }
    }

    #[inline]
    fn head(&self) -> &Head {
        // SAFETY: a task lives as long as there is a reference to it.
        unsafe { self.0.as_ref() }
    }

    /// Moves the reference into a raw waker.
    fn into_raw(self) -> RawWaker {
        raw_waker(ManuallyDrop::new(self).0)
    }
}

/// Access to the owner's parts of a task, on the owner's thread.
pub(crate) struct Owned<'a> {
    task: &'a TaskRef,
    _not_send: PhantomData<*const ()>,
}

impl Owned<'_> {
    pub(crate) fn state(&self) -> TaskState {
        self.head().state.get()
    }

    /// Returns the task's index in the list of live tasks.
    pub(crate) fn index(&self) -> u32 {
        self.head().index.get()
    }

    /// Counts a poll and records its time in nanoseconds.
    #[inline]
    pub(crate) fn note_poll(&self, time: u64) {
        let head = self.head();
        head.polls.set(head.polls.get().wrapping_add(1));
        head.polled_at.set(time);
    }

    /// Returns the number of polls, and the time of the last one.
    pub(crate) fn polls(&self) -> (u64, Duration) {
        let head = self.head();
        (head.polls.get(), Duration::from_nanos(head.polled_at.get()))
    }

    /// Records that a new task has been linked into the list at this index. The caller must queue
    /// it.
    ///
    /// # Panics
    /// If the task is not new.
    pub(crate) fn link(&self, index: u32) {
        assert!(self.state() == TaskState::New, "the task has already been linked");
        self.head().index.set(index);
        self.head().state.set(TaskState::Queued);
    }

    /// Records a wake. Returns true if the caller must queue the task.
    #[inline]
    pub(crate) fn notify(&self) -> bool {
        let state = &self.head().state;
        let (next, to_queue) = match state.get() {
            TaskState::Waiting => (TaskState::Queued, true),
            TaskState::Running => (TaskState::Notified, false),
            other => (other, false),
        };
        state.set(next);
        to_queue
    }

    /// Polls the future once, or drops it if the task has been aborted. Returns the new state:
    /// waiting, queued (the caller must queue the task), or done.
    ///
    /// # Safety
    /// The task must be queued.
    #[inline]
    pub(crate) unsafe fn run(&self) -> TaskState {
        let head = self.head();
        if head.remote_flags.is_aborted() {
            self.cancel();
            return TaskState::Done;
        }
        head.state.set(TaskState::Running);
        // SAFETY: the waker is never dropped, and does not outlive the reference in `self`.
        let waker = ManuallyDrop::new(unsafe { Waker::from_raw(raw_waker(self.task.0)) });
        // SAFETY: the task is live and was queued, so it is not running; this is the owner's
        // thread.
        let done = unsafe { (head.vtable.poll)(self.task.0, &mut Context::from_waker(&waker)) };
        let next = match head.state.get() {
            _ if done => TaskState::Done,
            TaskState::Notified => TaskState::Queued,
            _ => TaskState::Waiting,
        };
        head.state.set(next);
        if done {
            head.refs.return_reserve();
        }
        next
    }

    /// Drops the future. Returns false if the task is running or done.
    pub(crate) fn cancel(&self) -> bool {
        let head = self.head();
        if matches!(head.state.get(), TaskState::Running | TaskState::Notified | TaskState::Done) {
            return false;
        }
        // So that a wake during the drop of the future does not queue the task.
        head.state.set(TaskState::Running);
        // SAFETY: the task is live and not running, and this is the owner's thread, or the owner
        // does not know the task.
        unsafe { (head.vtable.cancel)(self.task.0) };
        head.state.set(TaskState::Done);
        head.refs.return_reserve();
        true
    }

    #[inline]
    fn head(&self) -> &Head {
        self.task.head()
    }
}

impl Clone for TaskRef {
    #[inline]
    fn clone(&self) -> Self {
        let head = self.head();
        head.refs.add(is_owner(&head.remote));
        Self(self.0)
    }
}

impl Drop for TaskRef {
    #[inline]
    fn drop(&mut self) {
        let head = self.head();
        let owner = is_owner(&head.remote);
        let free = head.vtable.free;
        if head.refs.release(owner) {
            // SAFETY: this was the last reference.
            unsafe { free(self.0) };
        }
    }
}

/// A reference to a task with a result of this type. It is `Send` and `Sync` if the result is
/// `Send`, because it locks the result.
pub(crate) struct JoinRef<T> {
    task: TaskRef,
    _result: PhantomData<Box<Mutex<T>>>,
}

impl<T> JoinRef<T> {
    pub(crate) fn join_state(&self) -> &JoinState<T> {
        &self.joinable().join_state
    }

    /// Records that the join handle has been dropped. If the task is done and its outcome was not
    /// taken, drops the result, or reports the panic to the runtime.
    pub(crate) fn detach(&self) {
        self.joinable().discard(self.join_state().detach());
    }

    /// Returns why a task that is done has no result.
    pub(crate) fn why_cancelled(&self) -> Cancelled {
        if self.join_state().is_taken() {
            Cancelled::Taken
        } else if self.task.head().remote_flags.is_aborted() {
            Cancelled::Aborted
        } else {
            Cancelled::RuntimeEnded
        }
    }

    /// Returns true in a forked child, where no loop runs the task.
    pub(crate) fn is_in_forked_child(&self) -> bool {
        !self.task.head().remote.in_owner_process()
    }

    fn joinable(&self) -> &Joinable<T> {
        // SAFETY: the task lives as long as this reference, and `make` created both with the same
        // type.
        unsafe { self.task.0.cast::<Joinable<T>>().as_ref() }
    }

    pub(crate) fn id(&self) -> Id {
        self.task.id()
    }

    pub(crate) fn task(&self) -> TaskRef {
        self.task.clone()
    }
}

static WAKER: RawWakerVTable = RawWakerVTable::new(clone, wake, wake_by_ref, release);

fn raw_waker(task: NonNull<Head>) -> RawWaker {
    RawWaker::new(task.as_ptr().cast_const().cast(), &WAKER)
}

/// Returns the reference that a raw waker holds.
///
/// # Safety
/// The pointer must come from [`raw_waker`], and must hold a reference.
#[inline]
unsafe fn held(task: *const ()) -> TaskRef {
    // SAFETY: `raw_waker` created it from a pointer that is not null.
    TaskRef(unsafe { NonNull::new_unchecked(task.cast_mut().cast()) })
}

/// Returns true if the waker's task is done, and `None` if it is not the waker of a task. Threads
/// other than the owner's may see this late.
pub(crate) fn is_done(waker: &Waker) -> Option<bool> {
    if !std::ptr::eq(waker.vtable(), &raw const WAKER) {
        return None;
    }
    // SAFETY: a waker with this table comes from `raw_waker`, and holds a reference as long as it is
    // borrowed.
    let task = ManuallyDrop::new(unsafe { held(waker.data()) });
    Some(task.is_done())
}

unsafe fn clone(task: *const ()) -> RawWaker {
    // SAFETY: by the contract of `RawWaker` the pointer belongs to a live waker, which keeps its
    // reference.
    let task = ManuallyDrop::new(unsafe { held(task) });
    task.head().span.waker("waker.clone");
    TaskRef::clone(&task).into_raw()
}

unsafe fn wake(task: *const ()) {
    // SAFETY: by the contract of `RawWaker` the pointer belongs to a live waker, which gives up its
    // reference.
    let task = unsafe { held(task) };
    task.head().span.waker("waker.wake");
    task.wake();
}

unsafe fn wake_by_ref(task: *const ()) {
    // SAFETY: by the contract of `RawWaker` the pointer belongs to a live waker, which keeps its
    // reference.
    let task = ManuallyDrop::new(unsafe { held(task) });
    task.head().span.waker("waker.wake_by_ref");
    TaskRef::clone(&task).wake();
}

unsafe fn release(task: *const ()) {
    // SAFETY: by the contract of `RawWaker` the pointer belongs to a live waker, which gives up its
    // reference.
    let task = unsafe { held(task) };
    task.head().span.waker("waker.drop");
    drop(task);
}
