//! A task's memory, and counted pointers to it: one allocation, which begins with its head.
//!
//! A task's *owner* is the thread of the runtime that it was spawned on. The future and the head's cells are used by the owner
//! only. The remote flags, the join state and constants are shared by all threads. Until a task has reached its runtime, the
//! spawning thread counts as the owner. The memory is freed with the last reference; future and result are dropped before.
#![allow(unsafe_code)]

use super::body::{self, Outcome};
use super::id::Id;
use super::join_state::JoinState;
use super::owner::{self, is_owner};
use super::refs::Refs;
use super::remote_flags::RemoteFlags;
use crate::tasks::remote::Remote;
use crate::trace::{TaskSpan, in_span};
use std::cell::{Cell, UnsafeCell};
use std::future::Future;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::panic::{Location, RefUnwindSafe, UnwindSafe};
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};
use std::time::Duration;

/// The states of a task. Only its owner reads and changes them.
///
/// A task is *new* until the owner has linked it into the list of live tasks, which also queues it. *Queued* means that it is in the
/// run queue, once; there a wake changes nothing. The owner takes it out and polls it: it is *running*. A wake during the poll makes
/// it *notified*. After the poll it is *done* if its future has completed or panicked, *queued* again if it was notified, and else
/// *waiting*; then a wake queues it. An abort, and the end of the runtime, drop its future in any state but running: it is *done*.
/// While the future is dropped the task counts as running, so that a wake from the drop does not queue it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    New,
    Waiting,
    Queued,
    Running,
    Notified,
    Done,
}

/// The part that all tasks have.
struct Head {
    /// References of all threads: the memory is freed with the last.
    refs: Refs,
    /// Set by other threads: the task is in the inbox, or was aborted.
    remote_flags: RemoteFlags,
    /// The owner's.
    state: Cell<State>,
    /// The owner's: the index in the list of live tasks.
    index: Cell<u32>,
    /// The owner's: how often it was polled, and in nanoseconds when last, or 0 if the runtime keeps no time.
    polls: Cell<u64>,
    polled_at: Cell<u64>,
    /// The runtime's inbox, by which other threads wake the task.
    remote: Arc<Remote>,
    spawned_at: &'static Location<'static>,
    /// The span of the feature `tracing`; without that, empty.
    span: TaskSpan,
    /// The functions that know the types of the future and its result.
    vtable: &'static Vtable,
}

/// A head, and the part that depends on the result's type only.
#[repr(C)]
struct Joinable<T> {
    head: Head,
    join_state: JoinState<T>,
}

impl<T> Joinable<T> {
    /// Drops a result that no join handle takes. A panic is reported to the runtime.
    #[inline]
    fn discard(&self, outcome: Option<Outcome<T>>) {
        if let Some(panic) = outcome.and_then(Outcome::into_panic) {
            self.head.remote.record_unhandled_panic(panic, self.head.spawned_at);
        }
    }
}

/// All of a task. It begins with its head, so that a pointer to one is a pointer to the other.
#[repr(C)]
struct Task<F: Future> {
    joinable: Joinable<F::Output>,
    /// The owner's. Never moved; `None` once the task is done.
    future: UnsafeCell<Option<F>>,
}

/// The functions that depend on the future's type. Each takes a pointer to a live task of the type that the table was made for.
struct Vtable {
    /// Polls the future. True if it is done, and its result is in the join state. Only on the owner's thread, and not while the task
    /// runs.
    poll: unsafe fn(NonNull<Head>, &mut Context<'_>) -> bool,
    /// Drops the future. Only on the owner's thread, and not while the task runs.
    cancel: unsafe fn(NonNull<Head>),
    /// Frees the memory. Only with the last reference.
    free: unsafe fn(NonNull<Head>),
}

impl<F: Future> Task<F> {
    const VTABLE: Vtable = Vtable { poll: Self::poll, cancel: Self::cancel, free: Self::free };

    unsafe fn poll(task: NonNull<Head>, cx: &mut Context<'_>) -> bool {
        // SAFETY: by the contract of `Vtable` it is a live task of this type.
        let task = unsafe { task.cast::<Self>().as_ref() };
        // SAFETY: by the contract of `Vtable` this is the owner's thread, and no other reference to the future exists.
        let Poll::Ready(outcome) = body::poll(unsafe { task.future() }, cx) else { return false };
        task.joinable.discard(task.joinable.join_state.complete(Some(outcome)));
        true
    }

    unsafe fn cancel(task: NonNull<Head>) {
        // SAFETY: by the contract of `Vtable` it is a live task of this type.
        let task = unsafe { task.cast::<Self>().as_ref() };
        // SAFETY: by the contract of `Vtable` this is the owner's thread, and no other reference to the future exists.
        let panic = body::end(unsafe { task.future() });
        _ = task.joinable.join_state.complete(panic.map(Outcome::panicked));
    }

    unsafe fn free(task: NonNull<Head>) {
        // SAFETY: `make` has boxed it, and by the contract of `Vtable` this is the last reference.
        drop(unsafe { Box::from_raw(task.cast::<Self>().as_ptr()) });
    }

    /// # Safety
    /// Only on the owner's thread, and not while another such reference lives.
    #[allow(clippy::mut_from_ref)]
    unsafe fn future(&self) -> Pin<&mut Option<F>> {
        // SAFETY: by the contract of this function it is the only reference; the future is not moved before it is dropped.
        unsafe { Pin::new_unchecked(&mut *self.future.get()) }
    }
}

/// Makes a task: a reference for the owner's list, and one for the join handle.
///
/// # Safety
/// Called on the thread that owns the remote; or the future is `Send`, and the task is pushed to that remote, or cancelled, before
/// any other use.
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
        state: Cell::new(State::New),
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
    // A pointer to the whole box, so that all parts of the task may be used through it.
    let task = NonNull::from(Box::leak(task)).cast();
    (TaskRef(task), JoinRef { task: TaskRef(task), _result: PhantomData })
}

/// The functions of the tasks with futures of this type, which may have no name.
fn vtable<F: Future>(_: &F) -> &'static Vtable {
    &Task::<F>::VTABLE
}

/// Makes a task and sends it to its owner. If that runtime has ended, the future is dropped here.
pub(crate) fn send<F>(
    future: F,
    remote: &Arc<Remote>,
    spawned_at: &'static Location<'static>,
) -> JoinRef<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    // SAFETY: the future is `Send`, and the next line pushes the task.
    let (task, link) = unsafe { make(future, remote.clone(), spawned_at) };
    if let Err(task) = remote.push(task) {
        // SAFETY: the owner has not taken the task and never will, so this thread counts as the owner.
        unsafe { task.owned() }.cancel();
    }
    link
}

/// A counted reference to a task, for any thread.
pub(crate) struct TaskRef(NonNull<Head>);

// SAFETY: safe methods use what all threads share, see the module. The owner's parts are used by unsafe methods, and by the count of
// references, which gets as a flag whether this is the owner's thread.
unsafe impl Send for TaskRef {}
// SAFETY: safe methods through a shared reference use only what all threads share, or get as a flag whether this is the owner's thread.
unsafe impl Sync for TaskRef {}

// A panic leaves no state broken: those of the future are caught, and no other part of a task runs foreign code.
impl UnwindSafe for TaskRef {}
impl RefUnwindSafe for TaskRef {}

impl TaskRef {
    /// Wakes the task, from any thread.
    #[inline]
    pub(crate) fn wake(self) {
        if is_owner(&self.head().remote) {
            // SAFETY: this is the owner's thread.
            if unsafe { self.owned() }.notify() {
                owner::push(self);
            }
        } else if self.head().remote_flags.enter_inbox() {
            let remote = self.head().remote.clone();
            // It fails only after the end, when every task is done.
            _ = remote.push(self);
        }
    }

    /// Ends the task before it runs again, from any thread.
    pub(crate) fn abort(self) {
        self.head().remote_flags.abort();
        self.wake();
    }

    /// Whether the task is done. On another thread than its owner's that may be seen late.
    pub(crate) fn is_done(&self) -> bool {
        self.head().refs.is_returned()
    }

    pub(crate) fn waker(&self) -> Waker {
        self.head().span.waker("waker.clone");
        // SAFETY: the raw waker has the clone's reference, and its functions keep the contract of `RawWaker`.
        unsafe { Waker::from_raw(self.clone().into_raw()) }
    }

    pub(crate) fn spawned_at(&self) -> &'static Location<'static> {
        self.head().spawned_at
    }

    #[inline]
    pub(crate) fn id(&self) -> Id {
        Id::at(self.0.as_ptr().addr())
    }

    /// The owner has taken it out of the inbox: the next wake from another thread puts it there again.
    pub(crate) fn leave_inbox(&self) {
        self.head().remote_flags.leave_inbox();
    }

    /// The task with its owner's parts.
    ///
    /// # Safety
    /// Only on the owner's thread, or before the owner knows the task.
    #[inline]
    pub(crate) unsafe fn owned(&self) -> Owned<'_> {
        Owned { task: self, _not_send: PhantomData }
    }

    #[inline]
    fn head(&self) -> &Head {
        // SAFETY: a task lives as long as a reference to it.
        unsafe { self.0.as_ref() }
    }

    /// Gives the reference to a raw waker.
    fn into_raw(self) -> RawWaker {
        raw_waker(ManuallyDrop::new(self).0)
    }
}

/// A task on its owner's thread, which uses the owner's parts.
pub(crate) struct Owned<'a> {
    task: &'a TaskRef,
    _not_send: PhantomData<*const ()>,
}

impl Owned<'_> {
    pub(crate) fn state(&self) -> State {
        self.head().state.get()
    }

    /// The task's index in the list of live tasks.
    pub(crate) fn index(&self) -> u32 {
        self.head().index.get()
    }

    /// Notes a poll at this time.
    #[inline]
    pub(crate) fn note_poll(&self, time: u64) {
        let head = self.head();
        head.polls.set(head.polls.get().wrapping_add(1));
        head.polled_at.set(time);
    }

    /// How often it was polled, and when last.
    pub(crate) fn polls(&self) -> (u64, Duration) {
        let head = self.head();
        (head.polls.get(), Duration::from_nanos(head.polled_at.get()))
    }

    /// Notes that a new task was linked at this index of the list. The caller must queue it.
    ///
    /// # Panics
    /// If the task is not new.
    pub(crate) fn link(&self, index: u32) {
        assert!(self.state() == State::New, "a task is linked once");
        self.head().index.set(index);
        self.head().state.set(State::Queued);
    }

    /// Notes a wake. True if the caller must queue the task.
    #[inline]
    pub(crate) fn notify(&self) -> bool {
        let state = &self.head().state;
        let (next, to_queue) = match state.get() {
            State::Waiting => (State::Queued, true),
            State::Running => (State::Notified, false),
            other => (other, false),
        };
        state.set(next);
        to_queue
    }

    /// Polls the future once, or drops it if the task was aborted. Returns the state: waiting, queued (the caller must queue it), or
    /// done.
    ///
    /// # Safety
    /// Only for a queued task.
    #[inline]
    pub(crate) unsafe fn run(&self) -> State {
        let head = self.head();
        if head.remote_flags.is_aborted() {
            self.cancel();
            return State::Done;
        }
        head.state.set(State::Running);
        // SAFETY: the waker is never dropped, and lives no longer than the reference in `self`.
        let waker = ManuallyDrop::new(unsafe { Waker::from_raw(raw_waker(self.task.0)) });
        // SAFETY: a live task, on the owner's thread, that was queued and so did not run.
        let done = unsafe { (head.vtable.poll)(self.task.0, &mut Context::from_waker(&waker)) };
        let next = match head.state.get() {
            _ if done => State::Done,
            State::Notified => State::Queued,
            _ => State::Waiting,
        };
        head.state.set(next);
        if done {
            head.refs.return_reserve();
        }
        next
    }

    /// Drops the future. False if the task runs, or is done.
    pub(crate) fn cancel(&self) -> bool {
        let head = self.head();
        if matches!(head.state.get(), State::Running | State::Notified | State::Done) {
            return false;
        }
        // The drop of the future may wake the task.
        head.state.set(State::Running);
        // SAFETY: a live task that did not run, on the owner's thread or unknown to the owner.
        unsafe { (head.vtable.cancel)(self.task.0) };
        head.state.set(State::Done);
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
            // SAFETY: it was the last reference.
            unsafe { free(self.0) };
        }
    }
}

/// A reference to a task with a result of this type, `Send` and `Sync` as a box with the result in a mutex.
pub(crate) struct JoinRef<T> {
    task: TaskRef,
    _result: PhantomData<Box<Mutex<T>>>,
}

impl<T> JoinRef<T> {
    pub(crate) fn join_state(&self) -> &JoinState<T> {
        &self.joinable().join_state
    }

    /// The join handle is dropped.
    pub(crate) fn detach(&self) {
        self.joinable().discard(self.join_state().detach());
    }

    fn joinable(&self) -> &Joinable<T> {
        // SAFETY: the task lives as long as this reference, and `make` gave both the same type.
        unsafe { self.task.0.cast::<Joinable<T>>().as_ref() }
    }

    pub(crate) fn id(&self) -> Id {
        self.task.id()
    }

    /// Another reference to the task.
    pub(crate) fn task(&self) -> TaskRef {
        self.task.clone()
    }
}

static WAKER: RawWakerVTable = RawWakerVTable::new(clone, wake, wake_by_ref, release);

fn raw_waker(task: NonNull<Head>) -> RawWaker {
    RawWaker::new(task.as_ptr().cast_const().cast(), &WAKER)
}

/// The reference of a raw waker.
///
/// # Safety
/// The pointer is from [`raw_waker`], and has a reference.
#[inline]
unsafe fn held(task: *const ()) -> TaskRef {
    // SAFETY: `raw_waker` made it from a pointer that is not null.
    TaskRef(unsafe { NonNull::new_unchecked(task.cast_mut().cast()) })
}

unsafe fn clone(task: *const ()) -> RawWaker {
    // SAFETY: by the contract of `RawWaker` the pointer is a live waker's, which keeps its reference.
    let task = ManuallyDrop::new(unsafe { held(task) });
    task.head().span.waker("waker.clone");
    TaskRef::clone(&task).into_raw()
}

unsafe fn wake(task: *const ()) {
    // SAFETY: by the contract of `RawWaker` the pointer is a live waker's, which gives its reference up.
    let task = unsafe { held(task) };
    task.head().span.waker("waker.wake");
    task.wake();
}

unsafe fn wake_by_ref(task: *const ()) {
    // SAFETY: by the contract of `RawWaker` the pointer is a live waker's, which keeps its reference.
    let task = ManuallyDrop::new(unsafe { held(task) });
    task.head().span.waker("waker.wake_by_ref");
    TaskRef::clone(&task).wake();
}

unsafe fn release(task: *const ()) {
    // SAFETY: by the contract of `RawWaker` the pointer is a live waker's, which gives its reference up.
    let task = unsafe { held(task) };
    task.head().span.waker("waker.drop");
    drop(task);
}
