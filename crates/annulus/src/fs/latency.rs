//! What a device has lately taken for each kind of call: what [`Policy::Adaptive`](super::Policy::Adaptive) goes by.
//!
//! A habit is *quick*, and its calls are made on the loop, until their average grows beyond [`QUICK`], or a few of them in
//! short order stall: a single stall may be the scheduler's. Then it is *slow*: calls go off the loop until enough of them
//! in a row have come back soon. Each relapse doubles how many are enough, so
//! that a device which is quick most of the time, and terrible now and then, is not tried again and again.
//!
//! Most calls are not timed: the clock is looked at after every few of them, whichever they were, and where it has leapt, all
//! are timed for a while.

use std::time::Duration;

/// What a call may take on the loop, on average.
pub const QUICK: Duration = Duration::from_micros(25);
/// A call on the loop that took longer than this has stalled.
const STALL: Duration = Duration::from_micros(100);
/// Stalls that make a habit slow, and the calls after which one of them is forgotten.
const STRIKES: u32 = 3;
const FORGOTTEN: u32 = 512;
/// An offloaded call that came back within this would have been quick on the loop: the hop is part of it.
const SOON: Duration = Duration::from_micros(150);
/// Calls in a row that must come back soon before the loop makes them again: at first, and at most.
const TERM: u32 = 8;
const LONGEST_TERM: u32 = 1 << 16;
/// Quick calls that make a relapse forgotten.
const FORGIVEN: u32 = 1 << 15;
/// Calls that are all timed, after what may have been a stall, and at first.
const WATCHED: u32 = FORGOTTEN / 4;
/// Of so many calls one is timed: asking for the time costs a good part of a cached read.
const SAMPLE: u32 = 64;
/// Weight of the newest call in the average: one part in so many.
const WEIGHT: u64 = 8;
/// Devices that are known apart; others share the last place.
const MOST_DEVICES: usize = 64;

/// Kinds of calls that differ in what they take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Read,
    Write,
    /// Opens that make or empty a file.
    Create,
    /// Opens of what exists.
    Open,
    /// Everything else that reads a path or a file's particulars.
    Look,
    /// Everything else that changes one.
    Change,
    /// Pages that go to a socket: how long the peer's side of that takes says nothing, only a stall does.
    Send,
}

const CLASSES: usize = 7;
/// Sizes are told apart where data is moved: up to 16 KiB, up to 256 KiB, and more.
const SIZES: usize = 3;

/// One kind of call on one device.
#[derive(Clone, Copy, Debug)]
struct Habit {
    /// Nanoseconds a call takes on the loop.
    average: u64,
    strikes: u32,
    slow: bool,
    /// Of a slow one, how many more must come back soon; of a quick one, how many were made.
    left: u32,
    term: u32,
}

impl Default for Habit {
    fn default() -> Self {
        Self { average: 0, strikes: 0, slow: false, left: 0, term: TERM }
    }
}

impl Habit {
    /// Counts a call about to be made on the loop; true where it is to be timed.
    #[inline]
    fn begin(&mut self, watched: bool) -> bool {
        self.left += 1;
        if self.left.is_multiple_of(FORGOTTEN) {
            self.strikes = self.strikes.saturating_sub(1);
        }
        watched || self.left % SAMPLE == 1
    }

    fn made_inline(&mut self, took: Duration) {
        if took > STALL {
            self.strikes += 1;
        } else {
            self.average = (self.average * (WEIGHT - 1) + took.as_nanos() as u64) / WEIGHT;
        }
        if self.strikes >= STRIKES || self.average > QUICK.as_nanos() as u64 {
            *self = Self { slow: true, left: self.term, term: self.term, ..Self::default() };
            self.term = (self.term * 2).min(LONGEST_TERM);
        } else if self.left >= FORGIVEN {
            self.left = 0;
            self.term = TERM;
        }
    }

    fn made_elsewhere(&mut self, took: Duration) {
        if !self.slow {
            return;
        }
        self.left = if took <= SOON { self.left - 1 } else { self.left.max(self.term / 2) };
        if self.left == 0 {
            self.slow = false;
        }
    }
}

/// A device's habits.
#[derive(Clone, Copy, Debug, Default)]
struct Device {
    number: u64,
    habits: [[Habit; SIZES]; CLASSES],
    /// It knows no calls that must not wait.
    waits: bool,
}

/// A device's place among the habits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeviceId(u16);

/// How a call is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timing {
    /// To the nanosecond.
    Fine,
    /// With others, now and then.
    Glance,
}

/// Which habit a call belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Habitual {
    pub(crate) device: DeviceId,
    pub(crate) class: Class,
    /// Bytes that it moves.
    pub(crate) bytes: usize,
}

/// All devices' habits. The first place is for what has not been seen yet.
pub(crate) struct Habits {
    devices: Vec<Device>,
    /// Calls on the loop that are still to be timed, all of them.
    watched: u32,
}

impl Habits {
    pub(crate) fn new() -> Self {
        Self { devices: vec![Device::default()], watched: WATCHED }
    }

    /// The place of a device, by its number.
    pub(crate) fn device(&mut self, number: u64) -> DeviceId {
        let place = self.devices.iter().position(|device| device.number == number);
        let place = place.unwrap_or_else(|| {
            if self.devices.len() < MOST_DEVICES {
                self.devices.push(Device { number, ..Device::default() });
            }
            self.devices.len() - 1
        });
        DeviceId(place as u16)
    }

    /// How a call about to be made on the loop is to be timed; `None` where it must not be made there.
    #[inline]
    pub(crate) fn begin(&mut self, call: &Habitual) -> Option<Timing> {
        let watched = self.watched > 0;
        let habit = self.habit(call);
        if habit.slow {
            return None;
        }
        if !habit.begin(watched) {
            return Some(Timing::Glance);
        }
        self.watched = self.watched.saturating_sub(1);
        Some(Timing::Fine)
    }

    /// Something may have stalled: calls are watched for a while.
    #[cold]
    pub(crate) fn beware(&mut self) {
        self.watched = WATCHED;
    }

    /// A call was made on the loop, and timed.
    pub(crate) fn made_inline(&mut self, call: &Habitual, took: Duration) {
        if took > STALL {
            self.beware();
        }
        self.habit(call).made_inline(took);
    }

    /// A call was made off the loop, and came back after this long.
    pub(crate) fn made_elsewhere(&mut self, call: &Habitual, took: Duration) {
        self.habit(call).made_elsewhere(took);
    }

    /// Whether calls that must not wait are known there.
    pub(crate) fn can_stay_cached(&self, device: DeviceId) -> bool {
        !self.devices[usize::from(device.0)].waits
    }

    pub(crate) fn cannot_stay_cached(&mut self, device: DeviceId) {
        self.devices[usize::from(device.0)].waits = true;
    }

    #[inline]
    fn habit(&mut self, call: &Habitual) -> &mut Habit {
        let size = match call.bytes {
            0..=0x4000 => 0,
            0x4001..=0x4_0000 => 1,
            _ => 2,
        };
        &mut self.devices[usize::from(call.device.0)].habits[call.class as usize][size]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MICRO: Duration = Duration::from_micros(1);
    const MILLI: Duration = Duration::from_millis(1);

    fn write(habits: &mut Habits, number: u64) -> Habitual {
        Habitual { device: habits.device(number), class: Class::Write, bytes: 4096 }
    }

    fn is_quick(habits: &mut Habits, call: Habitual) -> bool {
        habits.begin(&call).is_some()
    }

    /// As many as it takes.
    fn stall(habits: &mut Habits, call: Habitual) {
        (0..STRIKES).for_each(|_| habits.made_inline(&call, MILLI));
    }

    #[test]
    fn stalls_send_calls_away_and_calm_brings_them_back() {
        let mut habits = Habits::new();
        let call = write(&mut habits, 7);
        (0..100).for_each(|_| habits.made_inline(&call, 2 * MICRO));
        assert!(is_quick(&mut habits, call));
        stall(&mut habits, call);
        assert!(!is_quick(&mut habits, call));
        (1..TERM).for_each(|_| habits.made_elsewhere(&call, 20 * MICRO));
        assert!(!is_quick(&mut habits, call));
        habits.made_elsewhere(&call, 20 * MICRO);
        assert!(is_quick(&mut habits, call));
    }

    #[test]
    fn each_relapse_is_paid_for_twice_as_long() {
        let mut habits = Habits::new();
        let call = write(&mut habits, 7);
        for relapse in 0..20 {
            stall(&mut habits, call);
            let mut away = 0;
            while !is_quick(&mut habits, call) {
                habits.made_elsewhere(&call, MICRO);
                away += 1;
            }
            assert_eq!(away, (TERM << relapse).min(LONGEST_TERM));
        }
        for _ in 0..FORGIVEN {
            habits.begin(&call);
            habits.made_inline(&call, MICRO);
        }
        stall(&mut habits, call);
        (0..TERM).for_each(|_| habits.made_elsewhere(&call, MICRO));
        assert!(is_quick(&mut habits, call), "long calm is forgiveness");
    }

    #[test]
    fn slow_answers_keep_calls_away() {
        let mut habits = Habits::new();
        let call = write(&mut habits, 7);
        stall(&mut habits, call);
        for _ in 0..1000 {
            (1..TERM).for_each(|_| habits.made_elsewhere(&call, MICRO));
            habits.made_elsewhere(&call, 5 * MILLI);
            assert!(!is_quick(&mut habits, call));
        }
    }

    #[test]
    fn devices_classes_and_sizes_are_told_apart() {
        let mut habits = Habits::new();
        let slow = write(&mut habits, 7);
        stall(&mut habits, slow);
        assert!(!is_quick(&mut habits, slow));
        assert!(is_quick(&mut habits, Habitual { bytes: 1 << 20, ..slow }));
        assert!(is_quick(&mut habits, Habitual { class: Class::Create, ..slow }));
        let other = write(&mut habits, 8);
        assert!(is_quick(&mut habits, other));
        assert_eq!(habits.device(7), slow.device);
    }

    #[test]
    fn a_stall_now_and_then_may_be_the_schedulers() {
        let mut habits = Habits::new();
        let call = write(&mut habits, 7);
        for _ in 0..100 {
            habits.made_inline(&call, 4 * MILLI);
            for _ in 0..FORGOTTEN {
                assert!(is_quick(&mut habits, call));
            }
        }
    }

    #[test]
    fn calls_that_are_all_a_bit_slow_go_away_too() {
        let mut habits = Habits::new();
        let call = write(&mut habits, 7);
        (0..100).for_each(|_| habits.made_inline(&call, QUICK + MICRO));
        assert!(!is_quick(&mut habits, call));
    }

    #[test]
    fn few_calls_are_timed_but_all_after_a_stall_and_at_first() {
        let mut habits = Habits::new();
        let call = write(&mut habits, 7);
        let timed = |habits: &mut Habits| {
            let timings = (0..WATCHED).map(|_| habits.begin(&call).unwrap());
            timings.filter(|timing| *timing == Timing::Fine).count() as u32
        };
        assert_eq!([timed(&mut habits), timed(&mut habits)], [WATCHED, WATCHED / SAMPLE]);
        habits.made_inline(&call, MILLI);
        assert_eq!([timed(&mut habits), timed(&mut habits)], [WATCHED, WATCHED / SAMPLE]);
    }

    #[test]
    fn countless_devices_take_no_more_room() {
        let mut habits = Habits::new();
        for number in 0..100_000 {
            habits.device(number);
        }
        assert_eq!(habits.devices.len(), MOST_DEVICES);
    }
}
