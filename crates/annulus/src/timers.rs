//! Points in time, the clock of a guest's host, and the heap of timers.

use annulus_driver::{Slab, SlotId};
use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::task::Waker;
use std::time::Duration;

pub(crate) enum TimerAction {
    /// Wakes a task.
    Wake(Waker),
    /// Ends a dropped stream whose linger time has expired.
    Linger(SlotId),
    /// Checks again whether a close that waits for the peer may continue.
    Close(SlotId),
    /// Tries a listener's accept again.
    Accept(SlotId),
    /// Arms a stream's receive again.
    Recv(SlotId),
    /// Arms a datagram socket's receive again.
    DatagramRecv(SlotId),
    /// Polls the wake-up descriptor of the loop again.
    WakePoll(SlotId),
    /// Tries a stream's send again.
    Send(SlotId),
    /// Measures the held memory again.
    Memory,
    /// Looks for receives that have not ended although their sockets have hung up.
    IdleCheck,
    /// Gives up a connect attempt.
    Connect(SlotId),
    /// Tries to send datagrams again.
    DatagramRetry(SlotId),
    /// Gives up on the unsent datagrams of a dropped socket whose linger time has expired.
    DatagramLinger(SlotId),
}

struct Timer {
    /// The index of the timer's node in the heap, updated when the node moves.
    place: usize,
    action: TimerAction,
}

/// The key of a timer. It is invalid once the timer has been removed or has fired.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimerKey(SlotId);

/// Timers by deadline. Those with equal deadlines fire in the order in which they were set.
pub(crate) struct Timers {
    /// A binary heap: a node's deadline is not after the deadlines of its children.
    heap: Vec<Node>,
    timers: Slab<Timer>,
    sequence: u64,
}

const NEVER_NANOS: u64 = u64::MAX;

/// A timer's node in the heap. It is small, because each connection with a timeout has one.
#[derive(Clone, Copy)]
struct Node {
    /// The deadline in nanoseconds. A deadline more than 584 years after the clock's origin is
    /// [`NEVER_NANOS`].
    deadline: u64,
    /// The timer's number in the order in which timers were set. It decides between equal
    /// deadlines.
    sequence: u64,
    /// The timer's index in the slab.
    index: u32,
}

fn nanos(instant: Instant) -> u64 {
    let since_origin = instant.duration_since(Instant::since_origin(Duration::ZERO));
    u64::try_from(since_origin.as_nanos()).unwrap_or(NEVER_NANOS)
}

impl Node {
    fn deadline(&self) -> Instant {
        Instant::since_origin(Duration::from_nanos(self.deadline))
    }

    fn before(&self, other: &Self) -> bool {
        (self.deadline, self.sequence) < (other.deadline, other.sequence)
    }
}

impl Timers {
    pub(crate) fn new() -> Self {
        Self { heap: Vec::new(), timers: Slab::new(), sequence: 0 }
    }

    /// Sets a timer and returns the key that removes it.
    pub(crate) fn insert(&mut self, deadline: Instant, action: TimerAction) -> TimerKey {
        let place = self.heap.len();
        let index = self.timers.insert(Timer { place, action });
        self.sequence += 1;
        self.heap.push(Node { deadline: nanos(deadline), sequence: self.sequence, index });
        self.rise(place);
        TimerKey(self.timers.id(index))
    }

    /// Returns the action of a timer, unless it has fired or was removed.
    pub(crate) fn action_mut(&mut self, key: TimerKey) -> Option<&mut TimerAction> {
        self.timers.find(key.0).map(|timer| &mut timer.action)
    }

    /// Removes a timer, unless it has fired.
    pub(crate) fn remove(&mut self, key: TimerKey) -> Option<TimerAction> {
        self.timers.find(key.0)?;
        Some(self.take(key.0.index))
    }

    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }

    /// Returns the nearest deadline, or `None` if no timer will fire.
    #[inline]
    pub(crate) fn next(&self) -> Option<Instant> {
        self.heap.first().filter(|node| node.deadline < NEVER_NANOS).map(Node::deadline)
    }

    /// Removes the first timer whose deadline has passed, if any, and returns its action.
    pub(crate) fn expired(&mut self, now: Instant) -> Option<TimerAction> {
        let node = *self.heap.first()?;
        (node.deadline <= nanos(now)).then(|| self.take(node.index))
    }

    /// Removes all timers, in no particular order.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = TimerAction> {
        self.heap.clear();
        let timers = std::mem::take(&mut self.timers);
        timers.into_values().map(|timer| timer.action)
    }

    /// Calls `show` with the waker and the deadline of each timer that wakes a task. A waker is
    /// foreign code, so it is neither cloned nor dropped here.
    pub(crate) fn each_wait(&mut self, mut show: impl FnMut(&Waker, Instant)) {
        for node in &self.heap {
            if let TimerAction::Wake(waker) = &self.timers.get(node.index).action {
                show(waker, node.deadline());
            }
        }
    }

    fn take(&mut self, index: u32) -> TimerAction {
        let Timer { place, action } = self.timers.remove(index);
        self.heap.swap_remove(place);
        if place < self.heap.len() {
            self.note(place);
            self.rise(place);
            self.sink(place);
        }
        action
    }

    fn rise(&mut self, mut place: usize) {
        while place > 0 {
            let parent = (place - 1) / 2;
            if !self.heap[place].before(&self.heap[parent]) {
                break;
            }
            self.swap(place, parent);
            place = parent;
        }
    }

    fn sink(&mut self, mut place: usize) {
        loop {
            let children = [2 * place + 1, 2 * place + 2];
            let in_heap = children.into_iter().filter(|&child| child < self.heap.len());
            let Some(least) =
                in_heap.reduce(|a, b| if self.heap[b].before(&self.heap[a]) { b } else { a })
            else {
                break;
            };
            if !self.heap[least].before(&self.heap[place]) {
                break;
            }
            self.swap(place, least);
            place = least;
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.note(a);
        self.note(b);
    }

    fn note(&mut self, place: usize) {
        let index = self.heap[place].index;
        self.timers.get(index).place = place;
    }
}

/// A point in time on the clock of the thread's runtime or, outside a runtime, on the system's
/// monotonic clock.
///
/// Instants of different runtimes are comparable only if both run on the real kernel.
///
/// ```
/// use annulus::time::{Instant, sleep_until};
/// use std::time::Duration;
///
/// # annulus::run(async {
/// let start = Instant::now();
/// let deadline = start + Duration::from_millis(5);
/// sleep_until(deadline).await;
/// assert!(start.elapsed() >= Duration::from_millis(5));
/// assert_eq!(start - deadline, Duration::ZERO); // Subtraction saturates.
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(Duration);

impl Instant {
    pub(crate) fn since_origin(time: Duration) -> Self {
        Self(time)
    }

    pub(crate) fn time_since_origin(self) -> Duration {
        self.0
    }

    /// Returns the time since `earlier`, or zero if `earlier` is in fact later.
    pub fn duration_since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Instant {
    /// Returns the time since `earlier`, or `None` if `earlier` is in fact later.
    pub fn checked_duration_since(self, earlier: Self) -> Option<Duration> {
        self.0.checked_sub(earlier.0)
    }

    /// Returns the instant `duration` later, or `None` on overflow.
    pub fn checked_add(self, duration: Duration) -> Option<Self> {
        self.0.checked_add(duration).map(Self)
    }

    /// Returns the instant `duration` earlier, or `None` if it is before the clock's origin.
    pub fn checked_sub(self, duration: Duration) -> Option<Self> {
        self.0.checked_sub(duration).map(Self)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    /// Saturates, so that `now + Duration::MAX` never arrives.
    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;

    /// Saturates at the clock's origin.
    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(duration))
    }
}

impl SubAssign<Duration> for Instant {
    fn sub_assign(&mut self, duration: Duration) {
        *self = *self - duration;
    }
}

impl Sub for Instant {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.duration_since(earlier)
    }
}

/// The clock of another event loop, which may stand still or jump ahead.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostClock {
    /// The kernel's time when the host's time was zero.
    origin: Duration,
    /// Returns the host's time.
    elapsed: fn() -> Duration,
}

impl HostClock {
    /// Creates a clock that continues from the kernel's time `now`.
    pub(crate) fn new(now: Duration, elapsed: fn() -> Duration) -> Self {
        Self { origin: now.saturating_sub(elapsed()), elapsed }
    }

    pub(crate) fn now(self) -> Duration {
        self.origin.saturating_add((self.elapsed)())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(n: u64) -> Instant {
        Instant::since_origin(Duration::from_millis(n))
    }

    fn drain(timers: &mut Timers, until: u64) -> Vec<u32> {
        std::iter::from_fn(|| timers.expired(at(until)))
            .map(|action| match action {
                TimerAction::Linger(id) => id.index,
                _ => unreachable!("these tests set no other timers"),
            })
            .collect()
    }

    #[test]
    fn timers_fire_by_deadline_and_then_in_order_of_insertion() {
        let mut timers = Timers::new();
        for (deadline, name) in [(5, 50), (1, 10), (3, 30), (1, 11), (9, 90), (3, 31)] {
            timers.insert(at(deadline), TimerAction::Linger(SlotId { index: name, generation: 0 }));
        }
        assert_eq!(timers.next(), Some(at(1)));
        assert_eq!(drain(&mut timers, 5), [10, 11, 30, 31, 50]);
        assert_eq!(drain(&mut timers, 100), [90]);
        assert_eq!(timers.next(), None);
    }

    #[test]
    fn removed_timers_do_not_fire() {
        // The numbers 1 to 100 in a fixed, scrambled order: the powers of 7 modulo the prime 101.
        let scramble: Vec<u64> = (0..100)
            .scan(1, |n, _| {
                *n = *n * 7 % 101;
                Some(*n)
            })
            .collect();
        let mut timers = Timers::new();
        let keys: Vec<TimerKey> = scramble
            .iter()
            .map(|&n| {
                timers.insert(at(n), TimerAction::Linger(SlotId { index: n as u32, generation: 0 }))
            })
            .collect();
        for (key, n) in keys.iter().zip(&scramble) {
            if n % 3 == 0 {
                assert!(timers.remove(*key).is_some());
                assert!(timers.remove(*key).is_none(), "the key is still valid");
            }
        }
        let expected: Vec<u32> = (1..=100).filter(|n| n % 3 != 0).collect();
        assert_eq!(drain(&mut timers, 1000), expected);
    }
}
