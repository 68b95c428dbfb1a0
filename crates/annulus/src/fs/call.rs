//! How a file call is made: inline on the loop, or off it. [`CallSite::try_inline`] makes the call
//! now if the policy allows it, and [`CallSite::offload`] makes it without blocking the loop.
#![allow(unsafe_code)]

use super::open_file::OpenFile;
use super::open_file::PendingCall;
use super::path::CWD;
use crate::file_policy::{CallKind, Class, PageCache, Policy, Timing};
use crate::runtime::core::Core;
use crate::tasks::{consume_budget, yield_now};
use annulus_driver::FileStart;
use annulus_kernel::file::{FileCall, OpenHow};
use annulus_kernel::may_be_refusal;
use rustix::io::Errno;
use std::io;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::time::Duration;

/// The arguments of a file call, with the memory that the call points to. The trait is
/// crate-private and therefore sealed.
///
/// # Safety
/// Until the value is used again or dropped, even if it is moved in the meantime:
/// - memory that the call points to is valid, nothing else writes what the call reads, and nothing
///   else accesses what the call writes;
/// - descriptors in the call other than the given one are open, and this value may use them.
pub(super) unsafe trait CallArgs {
    /// Builds the call on a descriptor, or on paths that start from it.
    fn call(&mut self, fd: RawFd) -> FileCall;
}

/// A call with one descriptor and without memory.
pub(super) struct Plain<F>(pub(super) F);

// SAFETY: only calls without pointers and without other descriptors pass the check.
unsafe impl<F: Fn(RawFd) -> FileCall> CallArgs for Plain<F> {
    #[inline]
    fn call(&mut self, fd: RawFd) -> FileCall {
        let call = (self.0)(fd);
        assert!(
            call.properties().only_descriptor == Some(fd),
            "{call:?} uses more than descriptor {fd}"
        );
        call
    }
}

/// Where a call is made, and what the latency policy needs to know about it. Its arguments are
/// passed separately.
#[derive(Clone, Copy)]
pub(super) struct CallSite<'a> {
    pub(super) core: &'a Rc<Core>,
    /// The descriptor for the call; `None` means the working directory.
    pub(super) open: Option<&'a Rc<OpenFile>>,
    pub(super) policy: Policy,
    /// `None` if the call is expected to wait: for the device, or for the other end of a pipe.
    pub(super) kind: Option<CallKind>,
    /// The offset of a read whose data may be predicted to be in the page cache. `None` for other
    /// calls.
    pub(super) predictable: Option<u64>,
    /// Whether the call reads or writes at the cursor. On a pipe or a terminal, it may wait for
    /// another process indefinitely.
    pub(super) at_cursor: bool,
    /// The group of a call that may hang. A call with a group is never made inline.
    pub(super) group: Option<u64>,
}

impl<'a> CallSite<'a> {
    /// Makes the call inline and returns its result. Returns `None` if the call must be made off
    /// the loop or in a later turn.
    ///
    /// Not an async function, so that a call that need not wait does not cost a future.
    #[inline]
    pub(super) fn try_inline<A: CallArgs>(&self, args: &mut A) -> Option<io::Result<u32>> {
        let policy = &self.core.inline_policy;
        // If the loop is not running, `offload` returns the error.
        if policy.is_budget_spent() || self.group.is_some() || !self.core.is_running() {
            return None;
        }
        match (self.policy, &self.kind) {
            // The policy accepts waiting for a device, but another process could make the loop wait
            // indefinitely.
            (Policy::Inline, Some(kind)) if self.may_wait_for_peer() => {
                match self.call_checked(kind, args) {
                    Checked::Answer(answer) => Some(answer),
                    Checked::Miss | Checked::Plain(_) => None,
                }
            }
            (Policy::Inline, None) if self.may_wait_for_peer() => None,
            (Policy::Inline, kind) => {
                policy.count_inline(kind.as_ref().map_or(0, |kind| kind.bytes));
                Some(self.system_call(args))
            }
            (Policy::Adaptive, Some(kind)) => self.try_adaptive(kind, args),
            (Policy::Adaptive, None) | (Policy::Offload, _) => None,
        }
    }

    /// Makes a call off the loop, or inline in a later turn if the budget of this turn is spent.
    /// Returns the arguments.
    ///
    /// If the future is dropped, a call that has not begun is not made, and a call that has begun
    /// continues.
    pub(super) async fn offload<A>(self, mut args: A) -> (io::Result<u32>, A)
    where
        A: CallArgs + Unpin + 'static,
    {
        if self.core.inline_policy.is_budget_spent() {
            self.wait_for_budget().await;
            if let Some(answer) = self.try_inline(&mut args) {
                return (answer, args);
            }
        }
        let timer = self.offload_timer();
        let (answer, args) = match PendingCall::start(
            self.core,
            args,
            self.open.cloned(),
            self.start_of_offloaded(),
        ) {
            Ok(pending) => pending.await,
            Err((error, args)) => return (Err(error), args),
        };
        timer.end(self.core);
        (answer, args)
    }

    /// Starts to measure how long a call off the loop takes.
    fn offload_timer(&self) -> OffloadTimer<'a> {
        let policy = &self.core.inline_policy;
        let slow = self.kind.filter(|kind| policy.is_slow(kind));
        OffloadTimer {
            slow: slow.map(|kind| (kind, self.core.kernel.now())),
            cache: self.page_cache(),
            turn: policy.turn(),
        }
    }

    /// Returns the record of the file's reads, if the data of this read may be in memory.
    fn page_cache(&self) -> Option<&'a PageCache> {
        self.predictable.and(self.open).map(|open| &open.page_cache)
    }

    /// Makes a call inline if possible, and otherwise starts it off the loop, so that the calls of
    /// a turn are submitted together. Waits only for a turn with budget for inline calls.
    ///
    /// If the future is dropped while it waits, the call is not made.
    pub(super) async fn start<A: CallArgs + 'static>(self, mut args: A) -> StartedCall<'a, A> {
        if let Some(answer) = self.try_inline(&mut args) {
            return StartedCall::Ended(answer, args);
        }
        if self.core.inline_policy.is_budget_spent() {
            self.wait_for_budget().await;
            if let Some(answer) = self.try_inline(&mut args) {
                return StartedCall::Ended(answer, args);
            }
        }
        let start = match self.start_of_offloaded() {
            FileStart::Early => FileStart::WithTurn,
            start => start,
        };
        let timer = self.offload_timer();
        match PendingCall::start(self.core, args, self.open.cloned(), start) {
            Ok(pending) => StartedCall::Pending { pending, timer },
            Err((error, args)) => StartedCall::ended(error, args),
        }
    }

    /// Makes a call inline if possible, and otherwise off the loop.
    pub(super) async fn make<A>(self, mut args: A) -> (io::Result<u32>, A)
    where
        A: CallArgs + Unpin + 'static,
    {
        match self.try_inline(&mut args) {
            Some(answer) => (answer, args),
            None => self.offload(args).await,
        }
    }

    /// Uses some of the task's budget, and lets other tasks run until a turn has budget for inline
    /// calls. If the loop is not running, there is no later turn, and the call itself fails.
    #[inline]
    pub(super) async fn wait_for_budget(&self) {
        consume_budget().await;
        let core = self.core;
        while self.policy != Policy::Offload
            && self.group.is_none()
            && core.inline_policy.is_budget_spent()
            && core.is_running()
        {
            core.inline_policy.note_wait();
            _ = core.request_turn();
            yield_now().await;
        }
    }

    /// Returns how to start the call off the loop. Reads and calls without a kind start early,
    /// because they are expected to wait for a device.
    fn start_of_offloaded(&self) -> FileStart {
        match (self.group, &self.kind) {
            (Some(group), _) => FileStart::Isolated { group },
            (None, Some(kind)) if kind.class != Class::Read => FileStart::WithTurn,
            (None, _) => FileStart::Early,
        }
    }

    /// Returns true if the call may wait for another process.
    fn may_wait_for_peer(&self) -> bool {
        self.at_cursor && self.open.is_some_and(|open| !open.is_ordinary())
    }

    /// Makes the call if its data is in memory, or if earlier calls of this kind have been fast.
    #[inline]
    fn try_adaptive<A: CallArgs>(&self, kind: &CallKind, args: &mut A) -> Option<io::Result<u32>> {
        let policy = &self.core.inline_policy;
        let cache = self.page_cache();
        let predicted = self.is_predicted(kind);
        let mut refusal = None;
        let timing = if predicted {
            Some(Timing::Sampled)
        } else if cache.is_some_and(|cache| cache.expects_miss()) {
            return None;
        } else {
            match self.call_checked(kind, args) {
                Checked::Answer(answer) => {
                    if let (Some(cache), Ok(_)) = (cache, &answer) {
                        cache.hit();
                    }
                    return Some(answer);
                }
                Checked::Miss => {
                    cache.inspect(|cache| cache.checked_miss());
                    return None;
                }
                Checked::Plain(_) if self.may_wait_for_peer() => None,
                Checked::Plain(errno) => {
                    refusal = errno;
                    policy.before_inline(kind)
                }
            }
        };
        let Some(timing) = timing else {
            cache.inspect(|cache| cache.miss());
            return None;
        };
        policy.count_inline(kind.bytes);
        let call = || self.system_call(args);
        let (answer, stalled) = policy.measured(&*self.core.kernel, timing, kind, call);
        if predicted && stalled {
            cache.inspect(|cache| cache.check_next());
        }
        if refusal.is_some_and(|errno| errno_of(&answer) != Some(errno)) {
            policy.note_refused(kind.class);
        }
        Some(answer)
    }

    /// Returns true if the data of a read is predicted to be in the page cache.
    #[inline]
    fn is_predicted(&self, kind: &CallKind) -> bool {
        let policy = &self.core.inline_policy;
        self.predictable.zip(self.open).is_some_and(|(offset, open)| {
            open.page_cache.was_just_written(offset, kind.bytes as u64, policy.turn())
                || open
                    .page_cache
                    .predicts(|| open.is_ordinary() && policy.supports_nowait(kind.device))
        })
    }

    /// Makes a read or an open in a mode that fails instead of waiting, if the file system supports
    /// it.
    #[inline]
    fn call_checked<A: CallArgs>(&self, kind: &CallKind, args: &mut A) -> Checked {
        let policy = &self.core.inline_policy;
        let checkable = matches!(kind.class, Class::Read | Class::Open)
            && policy.supports_nowait(kind.device)
            && !policy.is_refused(kind.class);
        if checkable { self.call_nowait(kind, args) } else { Checked::Plain(None) }
    }

    fn call_nowait<A: CallArgs>(&self, kind: &CallKind, args: &mut A) -> Checked {
        let policy = &self.core.inline_policy;
        let cached;
        let call = match args.call(self.fd()) {
            FileCall::Read { fd, buffer, len, offset, .. } => {
                FileCall::Read { fd, buffer, len, offset, nowait: true }
            }
            FileCall::ReadVector { fd, vectors, count, offset, .. } => {
                FileCall::ReadVector { fd, vectors, count, offset, nowait: true }
            }
            FileCall::Open { at, how } => {
                // SAFETY: by `CallArgs`, the options are valid while the arguments are borrowed
                // here.
                let how = unsafe { *how };
                cached = OpenHow { resolve: how.resolve | OpenHow::CACHED, ..how };
                FileCall::Open { at, how: &cached }
            }
            _ => return Checked::Plain(None),
        };
        // SAFETY: by `CallArgs`, the memory of `args` is valid and exclusively ours while `args` is
        // borrowed here. `cached` outlives the call, and `self.open` keeps the descriptor open.
        let answer = unsafe { self.core.kernel.file(&call) };
        match errno_of(&answer) {
            Some(Errno::AGAIN) => {
                policy.count_miss();
                Checked::Miss
            }
            Some(Errno::OPNOTSUPP) => {
                // The answer of a pipe or terminal says nothing about the other files of its
                // device.
                if !self.may_wait_for_peer() {
                    policy.note_no_nowait(kind.device);
                }
                Checked::Miss
            }
            Some(errno) if may_be_refusal(errno) => Checked::Plain(Some(errno)),
            _ => {
                policy.count_inline(kind.bytes);
                Checked::Answer(answer)
            }
        }
    }

    /// Makes the call on this thread, however long it takes.
    #[inline]
    pub(super) fn system_call<A: CallArgs>(&self, args: &mut A) -> io::Result<u32> {
        // SAFETY: by `CallArgs`, the memory and other descriptors are valid and ours while `args`
        // is borrowed, which is longer than the call. `self.open` keeps this descriptor open.
        unsafe { self.core.kernel.file(&args.call(self.fd())) }
    }

    fn fd(&self) -> RawFd {
        self.open.map_or(CWD, |open| open.fd())
    }
}

/// A call that was made inline, or started off the loop.
pub(super) enum StartedCall<'a, A: 'static> {
    Ended(io::Result<u32>, A),
    Pending { pending: PendingCall<A>, timer: OffloadTimer<'a> },
}

/// Measures how long a call off the loop takes.
pub(super) struct OffloadTimer<'a> {
    /// A kind of call that is slow, and when the call began. The clock is not read for other calls.
    slow: Option<(CallKind, Duration)>,
    /// The record of the file's reads, if the data of this read may be in memory.
    cache: Option<&'a PageCache>,
    /// The turn in which the call began.
    turn: u32,
}

impl OffloadTimer<'_> {
    fn end(self, core: &Core) {
        let policy = &core.inline_policy;
        if let Some((kind, began)) = self.slow {
            policy.after_offload(&kind, core.kernel.now() - began);
        }
        // A call that ends within its turn is seen by the tasks of the next one.
        let waited = policy.turn().wrapping_sub(self.turn) > 1;
        self.cache.inspect(|cache| cache.note_offloaded(waited));
    }
}

impl<A: 'static> StartedCall<'_, A> {
    /// Returns a call that has failed before it was made.
    pub(super) fn ended(error: io::Error, args: A) -> Self {
        Self::Ended(Err(error), args)
    }
}

impl<A: Unpin + 'static> StartedCall<'_, A> {
    /// Waits for the result. If the future is dropped, the call is cancelled unless it has begun.
    pub(super) async fn finish(self, core: &Core) -> (io::Result<u32>, A) {
        match self {
            Self::Ended(answer, args) => (answer, args),
            Self::Pending { pending, timer } => {
                let ended = pending.await;
                timer.end(core);
                ended
            }
        }
    }
}

/// The outcome of a call in a mode that fails instead of waiting.
enum Checked {
    /// The call did not have to wait.
    Answer(io::Result<u32>),
    /// The call would wait, or the file turned out not to support the mode.
    Miss,
    /// The mode is not available, so the plain call must be made. Contains the error if an attempt
    /// was made and the kernel or a filter may have refused the mode.
    Plain(Option<Errno>),
}

fn errno_of(answer: &io::Result<u32>) -> Option<Errno> {
    answer.as_ref().err().and_then(Errno::from_io_error)
}

#[cfg(test)]
mod tests {
    use super::super::open::OpenArgs;
    use super::*;
    use crate::Runtime;
    use crate::file_policy::DeviceId;
    use crate::runtime::current;

    #[test]
    fn an_invalid_argument_marks_neither_the_device_nor_the_class_as_unsupported() {
        Runtime::new().unwrap().block_on(async {
            let core = &current::get().unwrap();
            let how = OpenHow { resolve: 1 << 40, ..OpenHow::default() };
            let kind = CallKind { device: DeviceId::default(), class: Class::Open, bytes: 0 };
            let policy = Policy::Adaptive;
            let site = CallSite {
                core,
                open: None,
                policy,
                kind: Some(kind),
                predictable: None,
                at_cursor: false,
                group: None,
            };
            let answer = site.call_checked(&kind, &mut OpenArgs { path: c"/".into(), how: &how });
            assert!(
                matches!(answer, Checked::Plain(Some(Errno::INVAL))),
                "the checked call gave another answer"
            );
            let mut args = OpenArgs { path: c"/".into(), how: &how };
            let answer = site.try_inline(&mut args).expect("the plain call was not made inline");
            assert_eq!(errno_of(&answer), Some(Errno::INVAL));
            assert!(core.inline_policy.supports_nowait(kind.device));
            assert!(!core.inline_policy.is_refused(Class::Open));
        });
    }

    #[test]
    #[should_panic(expected = "uses more than descriptor 3")]
    fn a_plain_call_with_memory_panics() {
        let call = |fd| FileCall::Read {
            fd,
            buffer: std::ptr::null_mut(),
            len: 0,
            offset: 0,
            nowait: false,
        };
        Plain(call).call(3);
    }
}
