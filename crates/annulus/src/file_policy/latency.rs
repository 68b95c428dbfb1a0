//! The latency policy: how long each kind of call has recently taken on each device.
//! [`Policy::Adaptive`](crate::fs::Policy::Adaptive) follows it.
//!
//! A kind of call on a device is *quick* or *slow*.
//!
//! - Quick: its calls are made inline. It becomes slow once the average exceeds [`QUICK`], or once
//!   several calls have stalled within a short time; a single stall may be the scheduler's fault.
//! - Slow: its calls go off the loop. It becomes quick again once enough of them in a row have
//!   returned soon. Each time it becomes slow, the required number doubles, so that a device that
//!   is mostly quick, with long stalls in between, is not tried inline over and over.
//!
//! Most inline calls are not timed. Instead, the clock is read after every few calls of any kind;
//! if it has jumped, all calls are timed for a while.

use std::time::Duration;

/// The longest average time of calls that are made inline.
pub(crate) const QUICK: Duration = Duration::from_micros(25);
/// An inline call that takes longer than this has stalled.
const MIN_STALL: Duration = Duration::from_micros(100);
/// Number of stalls that make a kind of call slow, and the number of calls after which one stall is
/// forgotten.
const MAX_STALLS: u32 = 3;
const CALLS_PER_FORGOTTEN_STALL: u32 = 512;
/// An offloaded call that returns within this time counts as quick. The time includes the round
/// trip off the loop.
const MAX_QUICK_OFFLOAD: Duration = Duration::from_micros(150);
/// Number of offloaded calls in a row that must return soon before calls are made inline again:
/// initially, and at most.
const MIN_RECOVERY_CALLS: u32 = 8;
const MAX_RECOVERY_CALLS: u32 = 1 << 16;
/// Number of quick calls after which the recovery is reset to its initial length.
const RECOVERY_RESET_CALLS: u32 = 1 << 15;
/// Number of calls that are all timed, after a possible stall and at the start.
const TIMED_CALLS_AFTER_STALL: u32 = CALLS_PER_FORGOTTEN_STALL / 4;
/// At other times, one call in this many is timed, since reading the clock takes a large part of
/// the time of a cached read.
const CALLS_PER_SAMPLE: u32 = 64;
/// The newest call contributes one part in this many to the moving average.
const AVERAGE_WEIGHT: u64 = 8;
/// Maximum number of devices. Once it is reached, further devices share the last entry.
const MAX_DEVICES: usize = 64;

/// Classes of calls, which differ in how long they take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Read,
    Write,
    /// An open that creates or truncates a file.
    Create,
    /// An open of an existing file.
    Open,
    /// Any other call that reads a path or a file's attributes.
    Query,
    /// Any other call that changes a path or a file's attributes.
    Modify,
    /// Pages sent to a socket. The peer determines the usual time, so only stalls count.
    Send,
}

const CLASS_COUNT: usize = 7;
/// Calls that move data are divided by size: up to 16 KiB, up to 256 KiB, and more.
const SIZE_COUNT: usize = 3;

#[derive(Clone, Copy, Debug)]
struct Latency {
    /// Average duration of the inline calls that have not stalled, in nanoseconds.
    average: u64,
    stalls: u32,
    slow: bool,
    /// While slow: the number of calls that must still return soon. While quick: the number of
    /// calls made.
    count: u32,
    /// Number of calls that must return soon the next time these calls are slow.
    recovery: u32,
}

impl Default for Latency {
    fn default() -> Self {
        Self { average: 0, stalls: 0, slow: false, count: 0, recovery: MIN_RECOVERY_CALLS }
    }
}

impl Latency {
    /// Counts a call that is about to be made inline. Returns true if the call should be timed.
    #[inline]
    fn before_inline(&mut self, time_all: bool) -> bool {
        self.count += 1;
        if self.count.is_multiple_of(CALLS_PER_FORGOTTEN_STALL) {
            self.stalls = self.stalls.saturating_sub(1);
        }
        time_all || self.count % CALLS_PER_SAMPLE == 1
    }

    fn after_inline(&mut self, took: Duration) {
        if took > MIN_STALL {
            self.stalls += 1;
        } else {
            self.average =
                (self.average * (AVERAGE_WEIGHT - 1) + took.as_nanos() as u64) / AVERAGE_WEIGHT;
        }
        if self.stalls >= MAX_STALLS || self.average > QUICK.as_nanos() as u64 {
            let recovery = (self.recovery * 2).min(MAX_RECOVERY_CALLS);
            *self = Self { slow: true, count: self.recovery, recovery, ..Self::default() };
        } else if self.count >= RECOVERY_RESET_CALLS {
            self.count = 0;
            self.recovery = MIN_RECOVERY_CALLS;
        }
    }

    fn after_offload(&mut self, took: Duration) {
        if !self.slow {
            return;
        }
        self.count = if took <= MAX_QUICK_OFFLOAD {
            self.count - 1
        } else {
            self.count.max(self.recovery / 2)
        };
        if self.count == 0 {
            self.slow = false;
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Device {
    number: u64,
    latencies: [[Latency; SIZE_COUNT]; CLASS_COUNT],
    /// Whether the file system lacks calls that fail instead of waiting (`RWF_NOWAIT`,
    /// `RESOLVE_CACHED`).
    no_nowait: bool,
}

/// The index of a device in the policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeviceId(u16);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timing {
    /// This call is timed on its own.
    Exact,
    /// The clock is read once every few calls.
    Sampled,
}

/// The key under which a call's latency is recorded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallKind {
    pub(crate) device: DeviceId,
    pub(crate) class: Class,
    /// Number of bytes that the call moves.
    pub(crate) bytes: usize,
}

impl CallKind {
    /// Returns the index of the call's size.
    #[inline]
    fn size(&self) -> usize {
        match self.bytes {
            0..=0x4000 => 0,
            0x4001..=0x4_0000 => 1,
            _ => 2,
        }
    }
}

/// The latencies of all devices. The first entry is for devices that are not yet known.
pub(crate) struct LatencyPolicy {
    devices: Vec<Device>,
    /// Number of upcoming inline calls that are all timed.
    timed_left: u32,
}

impl LatencyPolicy {
    pub(crate) fn new() -> Self {
        Self { devices: vec![Device::default()], timed_left: TIMED_CALLS_AFTER_STALL }
    }

    /// Returns the index of the device with this number, and adds the device if it is new. Beyond
    /// [`MAX_DEVICES`], new devices share the last index.
    pub(crate) fn device(&mut self, number: u64) -> DeviceId {
        let index = self.devices.iter().position(|device| device.number == number);
        let index = index.unwrap_or_else(|| {
            if self.devices.len() < MAX_DEVICES {
                self.devices.push(Device { number, ..Device::default() });
            }
            self.devices.len() - 1
        });
        DeviceId(index as u16)
    }

    /// Decides how to time the next inline call. Returns `None` if the call must not be made
    /// inline.
    #[inline]
    pub(crate) fn before_inline(&mut self, kind: &CallKind) -> Option<Timing> {
        let time_all = self.timed_left > 0;
        let latency = self.latency(kind);
        if latency.slow {
            return None;
        }
        if !latency.before_inline(time_all) {
            return Some(Timing::Sampled);
        }
        self.timed_left = self.timed_left.saturating_sub(1);
        Some(Timing::Exact)
    }

    /// Times all calls for a while, because one may have stalled.
    #[cold]
    pub(crate) fn time_all(&mut self) {
        self.timed_left = TIMED_CALLS_AFTER_STALL;
    }

    pub(crate) fn after_inline(&mut self, kind: &CallKind, took: Duration) {
        if took > MIN_STALL {
            self.time_all();
        }
        self.latency(kind).after_inline(took);
    }

    pub(crate) fn after_offload(&mut self, kind: &CallKind, took: Duration) {
        self.latency(kind).after_offload(took);
    }

    /// Returns true if calls of this kind are slow.
    pub(crate) fn is_slow(&self, kind: &CallKind) -> bool {
        self.devices[usize::from(kind.device.0)].latencies[kind.class as usize][kind.size()].slow
    }

    /// Returns true unless the device is known not to support calls that fail instead of waiting.
    pub(crate) fn supports_nowait(&self, device: DeviceId) -> bool {
        !self.devices[usize::from(device.0)].no_nowait
    }

    pub(crate) fn note_no_nowait(&mut self, device: DeviceId) {
        self.devices[usize::from(device.0)].no_nowait = true;
    }

    #[inline]
    fn latency(&mut self, kind: &CallKind) -> &mut Latency {
        &mut self.devices[usize::from(kind.device.0)].latencies[kind.class as usize][kind.size()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE_MICROSECOND: Duration = Duration::from_micros(1);
    const ONE_MILLISECOND: Duration = Duration::from_millis(1);

    fn write(policy: &mut LatencyPolicy, number: u64) -> CallKind {
        CallKind { device: policy.device(number), class: Class::Write, bytes: 4096 }
    }

    fn is_quick(policy: &mut LatencyPolicy, kind: CallKind) -> bool {
        policy.before_inline(&kind).is_some()
    }

    /// Records as many stalls as it takes to make the kind slow.
    fn stall(policy: &mut LatencyPolicy, kind: CallKind) {
        (0..MAX_STALLS).for_each(|_| policy.after_inline(&kind, ONE_MILLISECOND));
    }

    #[test]
    fn stalls_make_calls_slow_and_prompt_returns_make_them_quick() {
        let mut policy = LatencyPolicy::new();
        let kind = write(&mut policy, 7);
        (0..100).for_each(|_| policy.after_inline(&kind, 2 * ONE_MICROSECOND));
        assert!(is_quick(&mut policy, kind));
        stall(&mut policy, kind);
        assert!(!is_quick(&mut policy, kind));
        (1..MIN_RECOVERY_CALLS).for_each(|_| policy.after_offload(&kind, 20 * ONE_MICROSECOND));
        assert!(!is_quick(&mut policy, kind));
        policy.after_offload(&kind, 20 * ONE_MICROSECOND);
        assert!(is_quick(&mut policy, kind));
    }

    #[test]
    fn each_return_to_slow_doubles_the_recovery() {
        let mut policy = LatencyPolicy::new();
        let kind = write(&mut policy, 7);
        for times in 0..20 {
            stall(&mut policy, kind);
            let mut offloaded = 0;
            while !is_quick(&mut policy, kind) {
                policy.after_offload(&kind, ONE_MICROSECOND);
                offloaded += 1;
            }
            assert_eq!(offloaded, (MIN_RECOVERY_CALLS << times).min(MAX_RECOVERY_CALLS));
        }
        for _ in 0..RECOVERY_RESET_CALLS {
            policy.before_inline(&kind);
            policy.after_inline(&kind, ONE_MICROSECOND);
        }
        stall(&mut policy, kind);
        (0..MIN_RECOVERY_CALLS).for_each(|_| policy.after_offload(&kind, ONE_MICROSECOND));
        assert!(is_quick(&mut policy, kind), "many quick calls did not reset the recovery");
    }

    #[test]
    fn one_late_return_keeps_calls_slow() {
        let mut policy = LatencyPolicy::new();
        let kind = write(&mut policy, 7);
        stall(&mut policy, kind);
        for _ in 0..1000 {
            (1..MIN_RECOVERY_CALLS).for_each(|_| policy.after_offload(&kind, ONE_MICROSECOND));
            policy.after_offload(&kind, 5 * ONE_MILLISECOND);
            assert!(!is_quick(&mut policy, kind));
        }
    }

    #[test]
    fn each_device_class_and_size_has_its_own_latency() {
        let mut policy = LatencyPolicy::new();
        let slow = write(&mut policy, 7);
        stall(&mut policy, slow);
        assert!(!is_quick(&mut policy, slow));
        assert!(is_quick(&mut policy, CallKind { bytes: 1 << 20, ..slow }));
        assert!(is_quick(&mut policy, CallKind { class: Class::Create, ..slow }));
        let other = write(&mut policy, 8);
        assert!(is_quick(&mut policy, other));
        assert_eq!(policy.device(7), slow.device);
    }

    #[test]
    fn rare_stalls_do_not_make_calls_slow() {
        let mut policy = LatencyPolicy::new();
        let kind = write(&mut policy, 7);
        for _ in 0..100 {
            policy.after_inline(&kind, 4 * ONE_MILLISECOND);
            for _ in 0..CALLS_PER_FORGOTTEN_STALL {
                assert!(is_quick(&mut policy, kind));
            }
        }
    }

    #[test]
    fn an_average_above_the_limit_makes_calls_slow() {
        let mut policy = LatencyPolicy::new();
        let kind = write(&mut policy, 7);
        (0..100).for_each(|_| policy.after_inline(&kind, QUICK + ONE_MICROSECOND));
        assert!(!is_quick(&mut policy, kind));
    }

    #[test]
    fn all_calls_are_timed_at_first_and_after_a_stall_but_few_otherwise() {
        let mut policy = LatencyPolicy::new();
        let kind = write(&mut policy, 7);
        let timed = |policy: &mut LatencyPolicy| {
            let timings =
                (0..TIMED_CALLS_AFTER_STALL).map(|_| policy.before_inline(&kind).unwrap());
            timings.filter(|timing| *timing == Timing::Exact).count() as u32
        };
        assert_eq!(
            [timed(&mut policy), timed(&mut policy)],
            [TIMED_CALLS_AFTER_STALL, TIMED_CALLS_AFTER_STALL / CALLS_PER_SAMPLE]
        );
        policy.after_inline(&kind, ONE_MILLISECOND);
        assert_eq!(
            [timed(&mut policy), timed(&mut policy)],
            [TIMED_CALLS_AFTER_STALL, TIMED_CALLS_AFTER_STALL / CALLS_PER_SAMPLE]
        );
    }

    #[test]
    fn the_number_of_devices_is_bounded() {
        let mut policy = LatencyPolicy::new();
        for number in 0..100_000 {
            policy.device(number);
        }
        assert_eq!(policy.devices.len(), MAX_DEVICES);
    }
}
