//! A task's memory, and the counted pointers to it: one allocation, which the head begins.
//!
//! Who may touch what: a task's *home* is the thread of the runtime that it was spawned on. The future and the head's
//! cells are home's own. All threads share the calls, the joint and what never changes. Before a task has reached home,
//! whoever spawns it stands for home. Memory is freed when nobody holds the task; future and result are gone by then.
#![allow(unsafe_code)]

use super::body;
use super::join_state::Joint;
use super::owner::{self, is_home};
use super::refs::Refs;
use super::remote_flags::Calls;
use crate::runtime::remote::Remote;
use std::cell::{Cell, UnsafeCell};
use std::future::Future;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::panic::{Location, RefUnwindSafe, UnwindSafe};
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};

/// Where a task is on its way.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Home does not know it yet.
    Fresh,
    Waiting,
    Queued,
    Running,
    /// Woken while it runs.
    Again,
    /// Its future is gone.
    Over,
}

/// What all tasks have.
struct Head {
    refs: Refs,
    calls: Calls,
    /// Home's own.
    phase: Cell<Phase>,
    /// Home's own: the task's place on the list of the living.
    place: Cell<u32>,
    remote: Arc<Remote>,
    born: &'static Location<'static>,
    verbs: &'static Verbs,
}

/// A head, and what is known to whoever knows the result's type.
#[repr(C)]
struct Joined<T> {
    head: Head,
    joint: Joint<T>,
}

/// All of a task. It begins with its head, so that a pointer to one is a pointer to the other.
#[repr(C)]
struct Task<F: Future> {
    joined: Joined<F::Output>,
    /// Home's own. Never moved; `None` once over.
    future: UnsafeCell<Option<F>>,
}

/// What depends on the future's type. The pointer is a living task's, with the type the verbs were made for.
struct Verbs {
    /// Polls the future and tells whether it is over, its result handed on. Only at home, and not while it runs.
    poll: unsafe fn(NonNull<Head>, &mut Context<'_>) -> bool,
    /// Drops the future. Only at home, and not while it runs.
    cancel: unsafe fn(NonNull<Head>),
    /// Only by whoever was the last to hold the task.
    free: unsafe fn(NonNull<Head>),
}

impl<F: Future> Task<F> {
    const VERBS: Verbs = Verbs { poll: Self::poll, cancel: Self::cancel, free: Self::free };

    unsafe fn poll(task: NonNull<Head>, cx: &mut Context<'_>) -> bool {
        // SAFETY: as `Verbs` says: a living task of this type.
        let task = unsafe { task.cast::<Self>().as_ref() };
        // SAFETY: as `Verbs` says: at home, and not while it runs.
        let Poll::Ready(outcome) = body::poll(unsafe { task.future() }, cx) else { return false };
        task.joined.joint.complete(Some(outcome));
        true
    }

    unsafe fn cancel(task: NonNull<Head>) {
        // SAFETY: as in `poll`.
        let task = unsafe { task.cast::<Self>().as_ref() };
        // SAFETY: as in `poll`.
        body::end(unsafe { task.future() });
        task.joined.joint.complete(None);
    }

    unsafe fn free(task: NonNull<Head>) {
        // SAFETY: `make` boxed it, and as `Verbs` says nobody else has it any more.
        drop(unsafe { Box::from_raw(task.cast::<Self>().as_ptr()) });
    }

    /// # Safety
    /// Only at home, and not while another such reference lives.
    #[allow(clippy::mut_from_ref)]
    unsafe fn future(&self) -> Pin<&mut Option<F>> {
        // SAFETY: the caller's promise makes the reference the only one; a future is not moved before it is dropped.
        unsafe { Pin::new_unchecked(&mut *self.future.get()) }
    }
}

/// A new task: for home's list, and for its joiner.
///
/// # Safety
/// Called at the remote's home; or the future may be sent there, and the task is pushed to that remote, or cancelled,
/// before anybody else gets to know it.
pub(super) unsafe fn make<F>(
    future: F,
    remote: Arc<Remote>,
    born: &'static Location<'static>,
) -> (TaskRef, Link<F::Output>)
where
    F: Future + 'static,
{
    let head = Head {
        refs: Refs::new(2),
        calls: Calls::new(),
        phase: Cell::new(Phase::Fresh),
        place: Cell::new(0),
        remote,
        born,
        verbs: &Task::<F>::VERBS,
    };
    let joined = Joined { head, joint: Joint::new() };
    let task = Box::new(Task { joined, future: UnsafeCell::new(Some(future)) });
    // Of the whole box, so that the pointer may be used for all of it.
    let task = NonNull::from(Box::leak(task)).cast();
    (TaskRef(task), Link { task: TaskRef(task), _result: PhantomData })
}

/// A new task, sent to its home. After that one's end it is dropped here.
pub(super) fn send<F>(
    future: F,
    remote: &Arc<Remote>,
    born: &'static Location<'static>,
) -> Link<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    // SAFETY: it may be sent, and the next line does so.
    let (task, link) = unsafe { make(future, remote.clone(), born) };
    if let Err(task) = remote.push(task) {
        // SAFETY: home does not know it, and never will.
        unsafe { task.cancel() };
    }
    link
}

/// Holds a task. Any thread may have it.
pub(crate) struct TaskRef(NonNull<Head>);

// SAFETY: what it does from other threads, it does to what they share; see the module. What is home's own is touched by
// functions that are unsafe, and by the count of references, which is told where it is.
unsafe impl Send for TaskRef {}
// SAFETY: as above.
unsafe impl Sync for TaskRef {}

// A panic leaves nothing half done: the future's are kept in, and nothing else of a task runs anybody's code.
impl UnwindSafe for TaskRef {}
impl RefUnwindSafe for TaskRef {}

impl TaskRef {
    /// Wakes the task, from anywhere.
    #[inline]
    pub(super) fn wake(self) {
        if is_home(&self.head().remote) {
            // SAFETY: at home.
            if unsafe { self.rouse() } {
                owner::push(self);
            }
        } else if self.head().calls.call() {
            let remote = self.head().remote.clone();
            // After the end every task is over, and nothing is left to wake.
            _ = remote.push(self);
        }
    }

    /// Ends the task, from anywhere, before it would run again.
    pub(super) fn abort(self) {
        self.head().calls.abort();
        self.wake();
    }

    pub(super) fn waker(&self) -> Waker {
        // SAFETY: the clone's reference is the waker's.
        unsafe { Waker::from_raw(self.clone().into_raw()) }
    }

    /// Where it was spawned.
    pub(super) fn born(&self) -> &'static Location<'static> {
        self.head().born
    }

    /// Home has taken it out of the inbox: calls from now on put it there again.
    pub(super) fn answer(&self) {
        self.head().calls.answer();
    }

    /// # Safety
    /// Only at home.
    pub(super) unsafe fn phase(&self) -> Phase {
        self.head().phase.get()
    }

    /// Its place on the list of the living.
    ///
    /// # Safety
    /// Only at home.
    pub(super) unsafe fn place(&self) -> u32 {
        self.head().place.get()
    }

    /// Home takes it in, at this place of its list, and queues it.
    ///
    /// # Safety
    /// Only at home.
    pub(super) unsafe fn settle_in(&self, place: u32) {
        self.head().place.set(place);
        self.head().phase.set(Phase::Queued);
    }

    /// Notes that it was woken. True where the caller must queue it.
    ///
    /// # Safety
    /// Only at home.
    #[inline]
    pub(super) unsafe fn rouse(&self) -> bool {
        let phase = &self.head().phase;
        let (next, to_queue) = match phase.get() {
            Phase::Waiting => (Phase::Queued, true),
            Phase::Running => (Phase::Again, false),
            other => (other, false),
        };
        phase.set(next);
        to_queue
    }

    /// Runs it: once through its future's poll. Tells where it is then: waiting, queued (the caller must see to that), or
    /// over.
    ///
    /// # Safety
    /// Only at home, where it is queued.
    #[inline]
    pub(super) unsafe fn run(&self) -> Phase {
        let head = self.head();
        if head.calls.is_aborted() {
            // SAFETY: at home, and it does not run.
            unsafe { self.cancel() };
            return Phase::Over;
        }
        head.phase.set(Phase::Running);
        // SAFETY: lent for the poll, with the reference that `self` holds, and never dropped.
        let waker = ManuallyDrop::new(unsafe { Waker::from_raw(raw_waker(self.0)) });
        // SAFETY: a living task, at home, that did not run.
        let over = unsafe { (head.verbs.poll)(self.0, &mut Context::from_waker(&waker)) };
        let next = match head.phase.get() {
            _ if over => Phase::Over,
            Phase::Again => Phase::Queued,
            _ => Phase::Waiting,
        };
        head.phase.set(next);
        if over {
            head.refs.settle();
        }
        next
    }

    /// Drops its future. False where that is gone, or runs.
    ///
    /// # Safety
    /// Only at home, or before home knows the task.
    pub(super) unsafe fn cancel(&self) -> bool {
        let head = self.head();
        if matches!(head.phase.get(), Phase::Running | Phase::Again | Phase::Over) {
            return false;
        }
        // Its future's drop may wake it.
        head.phase.set(Phase::Running);
        // SAFETY: a living task, at home, that did not run.
        unsafe { (head.verbs.cancel)(self.0) };
        head.phase.set(Phase::Over);
        head.refs.settle();
        true
    }

    #[inline]
    fn head(&self) -> &Head {
        // SAFETY: a task lives as long as it is held.
        unsafe { self.0.as_ref() }
    }

    /// Its reference is the raw waker's from now on.
    fn into_raw(self) -> RawWaker {
        raw_waker(ManuallyDrop::new(self).0)
    }
}

impl Clone for TaskRef {
    #[inline]
    fn clone(&self) -> Self {
        let head = self.head();
        head.refs.add(is_home(&head.remote));
        Self(self.0)
    }
}

impl Drop for TaskRef {
    #[inline]
    fn drop(&mut self) {
        let head = self.head();
        let home = is_home(&head.remote);
        let free = head.verbs.free;
        if head.refs.release(home) {
            // SAFETY: that was the last reference.
            unsafe { free(self.0) };
        }
    }
}

/// A task whose result is of this type: as good as a box with the result.
pub(super) struct Link<T> {
    task: TaskRef,
    _result: PhantomData<Box<Mutex<T>>>,
}

impl<T> Link<T> {
    pub(super) fn joint(&self) -> &Joint<T> {
        // SAFETY: the task lives, and `make` gave the link its type.
        unsafe { &self.task.0.cast::<Joined<T>>().as_ref().joint }
    }

    pub(super) fn into_task(self) -> TaskRef {
        self.task
    }
}

static WAKER: RawWakerVTable = RawWakerVTable::new(clone, wake, wake_by_ref, release);

fn raw_waker(task: NonNull<Head>) -> RawWaker {
    RawWaker::new(task.as_ptr().cast_const().cast(), &WAKER)
}

/// The reference that a raw waker has.
///
/// # Safety
/// The pointer is from [`raw_waker`], and there is a reference for it.
#[inline]
unsafe fn held(task: *const ()) -> TaskRef {
    // SAFETY: it was made from a pointer that is not null.
    TaskRef(unsafe { NonNull::new_unchecked(task.cast_mut().cast()) })
}

unsafe fn clone(task: *const ()) -> RawWaker {
    // SAFETY: a waker's contract; its own reference stays.
    let task = ManuallyDrop::new(unsafe { held(task) });
    TaskRef::clone(&task).into_raw()
}

unsafe fn wake(task: *const ()) {
    // SAFETY: a waker's contract; its reference is used up.
    unsafe { held(task) }.wake();
}

unsafe fn wake_by_ref(task: *const ()) {
    // SAFETY: a waker's contract; its own reference stays.
    let task = ManuallyDrop::new(unsafe { held(task) });
    TaskRef::clone(&task).wake();
}

unsafe fn release(task: *const ()) {
    // SAFETY: a waker's contract; its reference is used up.
    drop(unsafe { held(task) });
}
