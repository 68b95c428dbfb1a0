//! The requests of one client: which are due, which are in flight, and the times of each.

use super::due::DueTimes;
use super::{Schedule, ThinkTime};
use crate::random::{Purpose, generator};
use fastrand::Rng;
use std::collections::VecDeque;

/// Which requests may be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// This many requests are to be sent, and count as sent now.
    Send(usize),
    /// No request is due before this time.
    NotBefore(u64),
    /// No request can be sent before the next reply.
    Full,
}

/// The times of a request, in nanoseconds on [`crate::clock`]: `due` ≤ `ready` ≤ `sent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestTimes {
    /// When the request was due, which is the start of its response time.
    pub(crate) due: u64,
    /// When the request was due and its connection had a free slot. The time from `ready` to `sent`
    /// is the load's own delay.
    pub(crate) ready: u64,
    /// When the request was sent, which is the start of its service time.
    pub(crate) sent: u64,
    /// The class of the request: an index into the plan's mix.
    pub(crate) class: u32,
}

impl RequestTimes {
    /// Returns the times of a request that was due, ready and sent at the same time.
    pub(crate) fn all(at: u64) -> RequestTimes {
        RequestTimes { due: at, ready: at, sent: at, class: 0 }
    }
}

/// Claims requests as they become due, with at most `depth` in flight, and keeps their times until
/// they are answered.
///
/// In a closed loop each free slot has a due time: the end of the think time after the reply that
/// freed it. In an open loop the schedule determines the due times, and a request that is due while
/// no slot is free is claimed once a slot is free.
#[derive(Debug)]
pub(crate) struct Pacer {
    depth: usize,
    pace: Pace,
    in_flight: SlotQueue<RequestTimes>,
    /// The due times of requests to be sent again, which come before all others. `None` until there
    /// has been one.
    #[expect(clippy::box_collection, reason = "there are many pacers, and few ever need this")]
    to_resend: Option<Box<VecDeque<u64>>>,
    /// Since when there has been a free slot on the connection.
    room_since: u64,
}

#[derive(Debug)]
enum Pace {
    /// The due times of the free slots, in order.
    Closed {
        free: SlotQueue<u64>,
        thinking: Option<Box<(ThinkTime, Rng)>>,
    },
    Open(Box<DueTimes>),
}

impl Pacer {
    /// Creates the pacer of `client`, out of `clients`, for a schedule that starts now. The first
    /// requests of a closed loop are due now, or after a first think time, so that the clients do
    /// not start together.
    pub(crate) fn new(
        schedule: &Schedule,
        depth: usize,
        [client, clients]: [usize; 2],
        seed: u64,
        now: u64,
    ) -> Pacer {
        let pace = match *schedule {
            Schedule::Closed { think } => {
                let mut random = generator(seed, client, Purpose::ThinkTime);
                let mut due: Vec<_> = (0..depth).map(|_| now + think.draw(&mut random)).collect();
                due.sort_unstable();
                let mut free = SlotQueue::new(depth);
                due.into_iter().for_each(|due| free.push(due));
                let thinking = (think != ThinkTime::None).then(|| Box::new((think, random)));
                Pace::Closed { free, thinking }
            }
            Schedule::Open { rate, arrivals } => {
                let due = DueTimes::new(rate, arrivals, [client, clients], seed, now);
                Pace::Open(Box::new(due))
            }
        };
        Pacer { depth, pace, in_flight: SlotQueue::new(depth), to_resend: None, room_since: now }
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Returns the requests in flight, oldest first.
    pub(crate) fn requests(&self) -> impl Iterator<Item = &RequestTimes> {
        self.in_flight.iter()
    }

    /// Returns how many requests were due by `end` and have not been sent: retries, and in
    /// an open loop also requests of the schedule.
    pub(crate) fn unsent(mut self, end: u64) -> u64 {
        let to_resend = self.to_resend.as_ref().map_or(0, |to_resend| to_resend.len() as u64);
        to_resend
            + match &mut self.pace {
                Pace::Closed { .. } => 0,
                Pace::Open(due) => due.skip_until(end),
            }
    }

    pub(crate) fn has_room(&self) -> bool {
        self.in_flight.len() < self.depth
    }

    /// Claims at most `most` requests that are due and have a free slot. `now` is called only if a
    /// slot is free.
    pub(crate) fn claim(&mut self, most: usize, now: impl FnOnce() -> u64) -> Claim {
        if !self.has_room() {
            return Claim::Full;
        }
        let now = now();
        let mut sent = 0;
        while sent < most && self.has_room() {
            match self.next_due() {
                due if due > now && sent == 0 => return Claim::NotBefore(due),
                due if due > now => break,
                due => {
                    let ready = due.max(self.room_since).min(now);
                    self.in_flight.push(RequestTimes { due, ready, sent: now, class: 0 });
                }
            }
            self.advance();
            sent += 1;
        }
        Claim::Send(sent)
    }

    /// Returns the last `requests` requests that were claimed, oldest first.
    pub(crate) fn claimed(&mut self, requests: usize) -> impl Iterator<Item = &mut RequestTimes> {
        self.in_flight.last_mut(requests)
    }

    /// Returns when the next request is due. There must be a free slot.
    fn next_due(&self) -> u64 {
        if let Some(&due) = self.to_resend.as_ref().and_then(|to_resend| to_resend.front()) {
            return due;
        }
        match &self.pace {
            Pace::Closed { free, .. } => *free.first().expect("a free slot has no due time"),
            Pace::Open(due) => due.next(),
        }
    }

    fn advance(&mut self) {
        if self.to_resend.as_mut().and_then(|to_resend| to_resend.pop_front()).is_some() {
            return;
        }
        match &mut self.pace {
            Pace::Closed { free, .. } => _ = free.pop(),
            Pace::Open(due) => due.advance(),
        }
    }

    /// Removes the request in flight at `position`, because it was answered. Position 0 is the
    /// oldest request, which moves to `position`.
    pub(crate) fn answer_at(&mut self, position: usize, now: u64) -> Option<RequestTimes> {
        self.in_flight.bring_forward(position);
        self.answer(now)
    }

    /// Removes the oldest request in flight, because it was answered or has failed. Returns its
    /// times.
    pub(crate) fn answer(&mut self, now: u64) -> Option<RequestTimes> {
        if !self.has_room() {
            self.room_since = now;
        }
        let times = self.in_flight.pop()?;
        if let Pace::Closed { free, thinking } = &mut self.pace {
            match thinking.as_deref_mut() {
                None => free.push(now),
                Some((think, random)) => free.push_sorted(now + think.draw(random)),
            }
        }
        Some(times)
    }

    /// Records that a connection was opened: requests that were due earlier could not be sent.
    pub(crate) fn connected(&mut self, now: u64) {
        self.room_since = now;
    }

    /// Removes all requests in flight, because they failed. Returns how many there were.
    pub(crate) fn fail(&mut self, now: u64) -> u64 {
        let failed = self.in_flight.len() as u64;
        while self.answer(now).is_some() {}
        failed
    }

    /// Queues the request at a position to be sent again with its due time, because the server has
    /// not processed it. Positions count as in [`Pacer::answer_at`]. Returns false if there is no
    /// such request.
    pub(crate) fn requeue_at(&mut self, position: usize, now: u64) -> bool {
        if !self.has_room() {
            self.room_since = now;
        }
        if position >= self.in_flight.len() {
            return false;
        }
        self.in_flight.bring_forward(position);
        if let Some(times) = self.in_flight.pop() {
            let to_resend = self.to_resend.get_or_insert_default();
            let at = to_resend.partition_point(|&earlier| earlier <= times.due);
            to_resend.insert(at, times.due);
        }
        true
    }

    /// Queues all requests in flight to be sent again with their due times, because the server has
    /// not processed them. Returns how many there were.
    pub(crate) fn requeue_all(&mut self) -> u64 {
        let count = self.in_flight.len() as u64;
        while self.in_flight.len() > 0 {
            self.requeue_at(0, self.room_since);
        }
        count
    }
}

/// A queue that needs no heap memory if it has one place, because every connection has one or two
/// queues.
#[derive(Debug)]
pub(super) enum SlotQueue<T> {
    One(Option<T>),
    Many(VecDeque<T>),
}

impl<T> SlotQueue<T> {
    /// Creates a queue with this many places. It grows if it needs more, unless it has one place.
    pub(super) fn new(places: usize) -> SlotQueue<T> {
        if places == 1 {
            SlotQueue::One(None)
        } else {
            SlotQueue::Many(VecDeque::with_capacity(places))
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        match self {
            SlotQueue::One(one) => usize::from(one.is_some()),
            SlotQueue::Many(many) => many.len(),
        }
    }

    #[inline]
    pub(super) fn first(&self) -> Option<&T> {
        match self {
            SlotQueue::One(one) => one.as_ref(),
            SlotQueue::Many(many) => many.front(),
        }
    }

    /// Adds an element at the end. A queue of one place must be empty.
    #[inline]
    pub(super) fn push(&mut self, value: T) {
        match self {
            SlotQueue::One(one) => {
                debug_assert!(one.is_none(), "the only place of the queue is taken");
                *one = Some(value);
            }
            SlotQueue::Many(many) => many.push_back(value),
        }
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<T> {
        match self {
            SlotQueue::One(one) => one.take(),
            SlotQueue::Many(many) => many.pop_front(),
        }
    }

    /// Swaps the first element with the one at `position`, if the queue is long enough.
    #[inline]
    pub(super) fn bring_forward(&mut self, position: usize) {
        match self {
            SlotQueue::Many(many) if position > 0 && position < many.len() => {
                many.swap(0, position)
            }
            _ => {}
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        let (one, many) = match self {
            SlotQueue::One(one) => (one.as_ref(), None),
            SlotQueue::Many(many) => (None, Some(many)),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }

    /// Returns the last `count` elements, in order. The queue must have that many.
    #[inline]
    pub(super) fn last_mut(&mut self, count: usize) -> impl Iterator<Item = &mut T> {
        let (one, many) = match self {
            SlotQueue::One(one) => (one.as_mut().filter(|_| count > 0), None),
            SlotQueue::Many(many) => (None, Some(many.range_mut(many.len() - count..))),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }
}

impl<T: Ord> SlotQueue<T> {
    /// Inserts an element before those that are greater, or at the end otherwise.
    pub(super) fn push_sorted(&mut self, value: T) {
        match self {
            SlotQueue::Many(many) => {
                let at = many.partition_point(|earlier| *earlier <= value);
                many.insert(at, value);
            }
            SlotQueue::One(_) => self.push(value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::{Arrivals, Rate};
    use proptest::prelude::*;
    use std::time::Duration;

    fn open(rate: f64, depth: usize, now: u64) -> Pacer {
        Pacer::new(&Schedule::open(Rate::constant(rate)), depth, [0, 1], 1, now)
    }

    fn closed(think: ThinkTime, depth: usize, now: u64) -> Pacer {
        Pacer::new(&Schedule::Closed { think }, depth, [0, 1], 1, now)
    }

    fn times(due: u64, ready: u64, sent: u64) -> Option<RequestTimes> {
        Some(RequestTimes { due, ready, sent, class: 0 })
    }

    #[test]
    fn closed_loop_request_is_due_at_the_previous_reply() {
        let mut pacer = closed(ThinkTime::None, 2, 100);
        assert_eq!(pacer.claim(usize::MAX, || 100), Claim::Send(2));
        assert_eq!(pacer.claim(usize::MAX, || unreachable!("nothing fits")), Claim::Full);
        assert_eq!(pacer.answer(150), times(100, 100, 100));
        // This request is due when the reply arrives at 150, and is claimed 5 ns later.
        assert_eq!(pacer.claim(usize::MAX, || 155), Claim::Send(1));
        assert_eq!(pacer.answer(160), times(100, 100, 100));
        assert_eq!(pacer.answer(170), times(150, 150, 155));
        assert_eq!(pacer.answer(170), None);
    }

    #[test]
    fn request_answered_out_of_order_keeps_its_times() {
        let mut pacer = open(1e7, 3, 1000);
        for now in [1000, 1100, 1200] {
            assert_eq!(pacer.claim(usize::MAX, || now), Claim::Send(1));
        }
        assert_eq!(pacer.answer_at(2, 1300), times(1200, 1200, 1200));
        assert_eq!(pacer.answer_at(1, 1300), times(1000, 1000, 1000));
        assert_eq!(pacer.answer_at(0, 1300), times(1100, 1100, 1100));
        assert_eq!(pacer.answer_at(0, 1300), None);
    }

    #[test]
    fn response_time_excludes_think_time() {
        let mut pacer = closed(ThinkTime::Fixed(Duration::from_nanos(50)), 1, 100);
        assert_eq!(pacer.claim(usize::MAX, || 100), Claim::NotBefore(150));
        assert_eq!(pacer.claim(usize::MAX, || 155), Claim::Send(1));
        assert_eq!(pacer.answer(200), times(150, 150, 155));
        assert_eq!(pacer.claim(usize::MAX, || 249), Claim::NotBefore(250));
        assert_eq!(pacer.claim(usize::MAX, || 250), Claim::Send(1));
    }

    #[test]
    fn open_loop_keeps_its_schedule_when_the_server_is_late() {
        let mut pacer = open(1e7, 2, 1000);
        assert_eq!(pacer.claim(usize::MAX, || 999), Claim::NotBefore(1000));
        assert_eq!(pacer.claim(usize::MAX, || 1000), Claim::Send(1));
        assert_eq!(pacer.claim(usize::MAX, || 1050), Claim::NotBefore(1100));
        assert_eq!(
            pacer.claim(usize::MAX, || 1450),
            Claim::Send(1),
            "four are due, but one slot is free"
        );
        assert_eq!(pacer.claim(usize::MAX, || 1450), Claim::Full);
        assert_eq!(pacer.answer(1500), times(1000, 1000, 1000));
        assert_eq!(pacer.answer(1500), times(1100, 1100, 1450), "the load's own delay is wrong");
        assert_eq!(pacer.claim(usize::MAX, || 1510), Claim::Send(2));
        assert_eq!(
            pacer.answer(1600),
            times(1200, 1500, 1510),
            "the time of waiting for a slot is wrong"
        );
    }

    #[test]
    fn requeued_request_keeps_its_due_time() {
        for mut pacer in [closed(ThinkTime::None, 3, 1000), open(2e9, 3, 1000)] {
            assert_eq!(pacer.claim(2, || 1001), Claim::Send(2), "claimed more than two requests");
            pacer.claimed(1).for_each(|times| times.class = 7);
            assert_eq!(pacer.claim(usize::MAX, || 1001), Claim::Send(1));
            let first = pacer.answer(1010).unwrap();
            pacer.requeue_all();
            assert_eq!(pacer.in_flight(), 0);
            assert_eq!(pacer.claim(2, || 1020), Claim::Send(2));
            let to_resend = pacer.answer(1030).unwrap();
            assert_eq!((first.due, first.class), (1000, 0));
            assert_eq!((to_resend.due, to_resend.sent), (1000, 1020));
        }
    }

    #[test]
    fn refused_requests_are_resent_in_order_of_due_times() {
        for mut pacer in [open(1e7, 4, 1000), closed(ThinkTime::None, 4, 1000)] {
            assert_eq!(pacer.claim(usize::MAX, || 1300), Claim::Send(4));
            let due: Vec<_> = pacer.in_flight.iter().map(|times| times.due).collect();
            // Request 0 moves to the position of request 2, so the requests in flight are then 1,
            // 0, 3.
            pacer.requeue_at(2, 1400);
            pacer.requeue_at(1, 1400);
            pacer.requeue_at(9, 1400);
            assert_eq!(pacer.in_flight(), 2);
            assert_eq!(pacer.claim(2, || 1500), Claim::Send(2));
            let to_resend: Vec<_> = std::iter::from_fn(|| pacer.answer(1600)).collect();
            let dues: Vec<_> = to_resend.iter().map(|times| times.due).collect();
            assert_eq!(dues, [due[1], due[3], due[0], due[2]]);
            assert_eq!((to_resend[2].ready, to_resend[2].sent), (1400, 1500));
        }
    }

    #[test]
    fn failed_requests_are_not_resent() {
        let mut pacer = closed(ThinkTime::None, 2, 0);
        pacer.claim(usize::MAX, || 1);
        assert_eq!((pacer.fail(50), pacer.fail(50)), (2, 0));
        pacer.claim(usize::MAX, || 60);
        let times = pacer.answer(70).unwrap();
        assert_eq!((times.due, times.sent), (50, 60), "the next request is not due at the failure");
        let mut pacer = open(1e8, 2, 0);
        pacer.claim(usize::MAX, || 15);
        assert_eq!(pacer.fail(50), 2);
        pacer.claim(1, || 60);
        assert_eq!(pacer.answer(70).unwrap().due, 20, "the schedule did not continue");
    }

    #[test]
    fn requests_that_were_due_and_not_sent_are_counted() {
        let mut pacer = open(1e7, 2, 1000);
        assert_eq!(pacer.claim(usize::MAX, || 1100), Claim::Send(2));
        assert!(pacer.requeue_at(0, 1150) && !pacer.requeue_at(1, 1150));
        // One to be sent again, and those due at 1200, 1300, … 2000.
        assert_eq!(pacer.unsent(2000), 10);
        let mut pacer = closed(ThinkTime::None, 2, 1000);
        assert_eq!(pacer.claim(1, || 1100), Claim::Send(1));
        assert_eq!(pacer.requeue_all(), 1);
        assert_eq!(pacer.unsent(2000), 1);
    }

    proptest! {
        /// With any schedule, requests are claimed in order of their due times, never early and
        /// never more than fit, and each is answered once with its times.
        #[test]
        fn claimed_requests_are_in_order_and_keep_their_times(
            kind in 0_usize..5,
            depth in 1_usize..10,
            steps in proptest::collection::vec((1_u64..2000, any::<bool>()), 1..300),
        ) {
            let ms = Duration::from_nanos(700);
            let schedule = match kind {
                0 => Schedule::default(),
                1 => Schedule::Closed { think: ThinkTime::Exponential(ms) },
                2 => Schedule::open(Rate::constant(2e6)),
                3 => Schedule::Open { rate: Rate::constant(2e6), arrivals: Arrivals::Poisson },
                _ => Schedule::Open { rate: Rate::constant(2e6), arrivals: Arrivals::Burst(ms) },
            };
            let mut pacer = Pacer::new(&schedule, depth, [0, 1], 3, 0);
            let (mut now, mut claimed, mut answered, mut last) = (0, 0, 0, 0);
            for (pass, reply) in steps {
                now += pass;
                match pacer.claim(usize::MAX, || now) {
                    Claim::Send(count) => claimed += count,
                    Claim::NotBefore(at) => prop_assert!(at > now && pacer.has_room()),
                    Claim::Full => prop_assert!(!pacer.has_room()),
                }
                prop_assert!(pacer.in_flight() <= depth && pacer.in_flight() == claimed - answered);
                if reply && let Some(RequestTimes { due, ready, sent, class: 0 }) = pacer.answer(now) {
                    answered += 1;
                    prop_assert!(due <= ready && ready <= sent && sent <= now && last <= due);
                    last = due;
                }
            }
        }

        #[test]
        fn immediate_replies_get_the_full_rate(rate in 1000.0_f64..1e6, depth in 1_usize..5) {
            let mut pacer = open(rate, depth, 0);
            let (mut now, mut sent) = (0, 0_u32);
            while now < 1_000_000_000 / 50 {
                match pacer.claim(usize::MAX, || now) {
                    Claim::NotBefore(at) => now = at,
                    _ => while pacer.answer(now).is_some() { sent += 1 },
                }
            }
            prop_assert!((f64::from(sent) - rate / 50.0).abs() <= 2.0, "{sent} of {}", rate / 50.0);
        }
    }
}
