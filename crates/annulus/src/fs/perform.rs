//! Making a call, on the loop or off it.
#![allow(unsafe_code)]

use super::latency::{Class, Habitual, Timing};
use super::pending_call::Pending;
use super::policy::Policy;
use crate::runtime::core::Core;
use crate::task::yield_now;
use annulus_kernel::file::{FileCall, OpenHow};
use rustix::io::Errno;
use std::io;
use std::rc::Rc;

/// `openat2(2)`: fail with EAGAIN unless the path is in memory (5.12).
const RESOLVE_CACHED: u64 = 0x20;

/// A call, with what decides where it is made.
pub(crate) struct Job {
    pub(crate) call: FileCall,
    pub(crate) policy: Policy,
    /// `None` for what always waits for the device.
    pub(crate) habit: Option<Habitual>,
}

impl Job {
    /// Off the loop it waits for a device: it goes past the cache, or reads what that does not have.
    fn waits(&self) -> bool {
        self.habit.as_ref().is_none_or(|habit| habit.class == Class::Read)
    }
}

/// Makes a call, and gives back what it named.
///
/// Dropped early, it does not begin a call that has not begun; one that has begun goes on.
///
/// # Safety
/// As [`Pending::start`].
pub(crate) async unsafe fn perform<K: Unpin + 'static>(
    core: &Rc<Core>,
    job: Job,
    kept: K,
) -> (io::Result<u32>, K) {
    // SAFETY: what the call names is `kept`'s, which is here.
    match unsafe { attempt_at_once(core, &job) } {
        Some(answer) => (answer, kept),
        // SAFETY: the caller's promise, passed on.
        None => unsafe { perform_later(core, job, kept).await },
    }
}

/// The call's answer, where it could be made on the loop, and this turn has not made enough calls already.
///
/// Apart from what may have to wait, so that a call that need not wait costs no future.
///
/// # Safety
/// What the call names must be valid.
#[inline]
pub(crate) unsafe fn attempt_at_once(core: &Core, job: &Job) -> Option<io::Result<u32>> {
    if core.files.is_out_of_breath() {
        return None;
    }
    // SAFETY: the caller's promise, passed on.
    unsafe { attempt(core, job) }
}

/// Makes a call that could not be made at once: on the loop in a turn to come, or off the loop.
///
/// # Safety
/// As [`Pending::start`].
pub(crate) async unsafe fn perform_later<K: Unpin + 'static>(
    core: &Rc<Core>,
    job: Job,
    kept: K,
) -> (io::Result<u32>, K) {
    if core.files.is_out_of_breath() {
        breathe(core, job.policy).await;
        // SAFETY: what the call names is `kept`'s, which is here.
        if let Some(answer) = unsafe { attempt(core, &job) } {
            return (answer, kept);
        }
    }
    // SAFETY: the caller's promise, passed on.
    unsafe { offload(core, job, kept).await }
}

/// Lets the others have their turn, where this one has made enough calls on the loop.
#[inline]
pub(crate) async fn breathe(core: &Core, policy: Policy) {
    // Where the loop does not turn, nobody gives new breath; the call itself says what is wrong.
    while policy != Policy::Offload && core.files.is_out_of_breath() && core.is_running() {
        yield_now().await;
    }
}

/// Makes a call off the loop.
///
/// # Safety
/// As [`Pending::start`].
pub(crate) async unsafe fn offload<K: Unpin + 'static>(
    core: &Rc<Core>,
    job: Job,
    kept: K,
) -> (io::Result<u32>, K) {
    let began = core.kernel.now();
    // SAFETY: the caller's promise, passed on.
    let (answer, kept) = match unsafe { Pending::start(core, job.call, job.waits(), kept) } {
        Ok(pending) => pending.await,
        Err((error, kept)) => return (Err(error), kept),
    };
    if let Some(habit) = &job.habit {
        core.files.habits.borrow_mut().made_elsewhere(habit, core.kernel.now() - began);
    }
    (answer, kept)
}

/// The call's answer, where it could be made on the loop.
///
/// # Safety
/// What the call names must be valid.
#[inline]
pub(crate) unsafe fn attempt(core: &Core, job: &Job) -> Option<io::Result<u32>> {
    if !core.is_running() {
        // The way off the loop says what is wrong.
        return None;
    }
    match (job.policy, &job.habit) {
        (Policy::Inline, _) => {
            core.files.count_inline(job.habit.as_ref().map_or(0, |habit| habit.bytes));
            // SAFETY: the caller's promise, passed on.
            Some(unsafe { core.kernel.file(&job.call) })
        }
        (Policy::Adaptive, Some(habit)) => {
            // SAFETY: as above.
            unsafe { attempt_cached(core, &job.call, habit) }.unwrap_or_else(|| {
                // SAFETY: as above.
                unsafe { attempt_quickly(core, &job.call, habit) }
            })
        }
        (Policy::Adaptive, None) | (Policy::Offload, _) => None,
    }
}

/// # Safety
/// What the call names must be valid.
unsafe fn attempt_quickly(
    core: &Core,
    call: &FileCall,
    habit: &Habitual,
) -> Option<io::Result<u32>> {
    let timing = core.files.habits.borrow_mut().begin(habit)?;
    core.files.count_inline(habit.bytes);
    // SAFETY: the caller's promise, passed on.
    let call = || unsafe { core.kernel.file(call) };
    match timing {
        Timing::Fine => {
            let (answer, took) = core.files.timed(&*core.kernel, call);
            core.files.habits.borrow_mut().made_inline(habit, took);
            Some(answer)
        }
        Timing::Glance => Some(glanced(core, call).0),
    }
}

/// Makes a call that is likely to be quick; true where something may have stalled, whatever it was.
#[inline]
pub(super) fn glanced<T>(core: &Core, call: impl FnOnce() -> T) -> (T, bool) {
    let (answer, stalled) = core.files.glanced(&*core.kernel, call);
    if stalled {
        core.files.habits.borrow_mut().beware();
    }
    (answer, stalled)
}

/// Makes a read or an open as long as memory has all it needs: the answer, or none where it has not; `None` for calls that
/// know no such way.
///
/// # Safety
/// What the call names must be valid.
unsafe fn attempt_cached(
    core: &Core,
    call: &FileCall,
    habit: &Habitual,
) -> Option<Option<io::Result<u32>>> {
    if !matches!(habit.class, Class::Read | Class::Open)
        || !core.files.habits.borrow().can_stay_cached(habit.device)
    {
        return None;
    }
    // SAFETY: the caller's promise, passed on.
    match unsafe { call_cached(core, call) }? {
        Err(error) if is_miss(&error) => {
            core.files.count_miss();
            Some(None)
        }
        Err(error) if is_unknown(&error) => {
            core.files.habits.borrow_mut().cannot_stay_cached(habit.device);
            Some(None)
        }
        // No such way, or the caller's mistake: that is told by the call itself.
        Err(error) if is_refused(&error) => None,
        answer => {
            core.files.count_inline(habit.bytes);
            Some(Some(answer))
        }
    }
}

/// # Safety
/// What the call names must be valid.
unsafe fn call_cached(core: &Core, call: &FileCall) -> Option<io::Result<u32>> {
    let cached_how;
    let cached = match *call {
        FileCall::Read { fd, buffer, len, offset, .. } => {
            FileCall::Read { fd, buffer, len, offset, nowait: true }
        }
        FileCall::ReadVector { fd, vectors, count, offset, .. } => {
            FileCall::ReadVector { fd, vectors, count, offset, nowait: true }
        }
        FileCall::Open { at, how } => {
            // SAFETY: the caller's promise.
            let how = unsafe { *how };
            cached_how = OpenHow { resolve: how.resolve | RESOLVE_CACHED, ..how };
            FileCall::Open { at, how: &cached_how }
        }
        _ => return None,
    };
    // SAFETY: the caller's promise; the options outlive the call.
    Some(unsafe { core.kernel.file(&cached) })
}

/// The data is not in memory.
fn is_miss(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::AGAIN.raw_os_error())
}

/// The file system knows no such way.
fn is_unknown(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::OPNOTSUPP.raw_os_error())
}

/// The kernel may know no such way.
fn is_refused(error: &io::Error) -> bool {
    let refused = [Errno::INVAL, Errno::NOSYS].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|code| refused.contains(&code))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Runtime, fs::latency::DeviceId};
    use annulus_kernel::file::PathAt;

    #[test]
    fn a_callers_mistake_is_not_held_against_the_device() {
        let runtime = Runtime::new().unwrap();
        let core = runtime.core();
        let how = OpenHow { resolve: 1 << 40, ..OpenHow::default() };
        let call = FileCall::Open { at: PathAt { dir: -100, path: c"/".as_ptr() }, how: &how };
        let device = DeviceId::default();
        let habit = Habitual { device, class: Class::Open, bytes: 0 };
        // SAFETY: path and options outlive the call.
        let answer = unsafe { attempt_cached(core, &call, &habit) };
        assert!(answer.is_none(), "the call itself tells");
        assert!(core.files.habits.borrow().can_stay_cached(device));
    }
}
