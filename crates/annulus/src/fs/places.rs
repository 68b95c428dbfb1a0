//! Places that are taken and given back, and the line of those who wait for one.

use std::collections::VecDeque;
use std::task::Waker;

/// What is free. As long as somebody waits whom no place was granted yet, nothing is.
#[derive(Debug)]
pub(super) struct Free {
    places: Vec<u32>,
    line: VecDeque<Waiting>,
    next: u64,
}

/// A place in the line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ticket(u64);

#[derive(Debug)]
struct Waiting {
    ticket: u64,
    waker: Option<Waker>,
    granted: Option<u32>,
}

impl Free {
    pub(super) fn new(count: u32) -> Self {
        // Low places first: they are warm.
        Self { places: (0..count).rev().collect(), line: VecDeque::new(), next: 0 }
    }

    pub(super) fn count(&self) -> usize {
        self.places.len()
    }

    /// A place that nobody waits for.
    pub(super) fn take(&mut self) -> Option<u32> {
        self.places.pop()
    }

    /// A place; or a ticket in the line, whose turn the waker tells. What waker is left is for the caller to drop.
    pub(super) fn poll(
        &mut self,
        ticket: &mut Option<Ticket>,
        waker: &mut Option<Waker>,
    ) -> Option<u32> {
        let Some(Ticket(number)) = *ticket else {
            let place = self.take();
            if place.is_none() {
                *ticket = Some(self.queue(waker.take()));
            }
            return place;
        };
        let at = self.find(number);
        let Some(place) = self.line[at].granted else {
            std::mem::swap(&mut self.line[at].waker, waker);
            return None;
        };
        self.line.remove(at);
        *ticket = None;
        Some(place)
    }

    fn queue(&mut self, waker: Option<Waker>) -> Ticket {
        let ticket = self.next;
        self.next += 1;
        self.line.push_back(Waiting { ticket, waker, granted: None });
        Ticket(ticket)
    }

    /// A place is free again, or goes to the first in the line: who is to be woken.
    pub(super) fn give_back(&mut self, place: u32) -> Option<Waker> {
        let Some(first) = self.line.iter_mut().find(|waiting| waiting.granted.is_none()) else {
            self.places.push(place);
            return None;
        };
        first.granted = Some(place);
        first.waker.take()
    }

    /// Leaves the line, with the place that was granted meanwhile, and the waker.
    pub(super) fn leave(&mut self, ticket: Ticket) -> (Option<u32>, Option<Waker>) {
        let at = self.find(ticket.0);
        let waiting = self.line.remove(at);
        waiting.map_or((None, None), |waiting| (waiting.granted, waiting.waker))
    }

    fn find(&self, ticket: u64) -> usize {
        let at = self.line.iter().position(|waiting| waiting.ticket == ticket);
        at.expect("a ticket is in the line until it is taken")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waker() -> Option<Waker> {
        Some(Waker::noop().clone())
    }

    #[test]
    fn who_came_first_is_served_first_and_nobody_overtakes() {
        let mut free = Free::new(1);
        let mut tickets = [None, None, None];
        assert_eq!(free.take(), Some(0));
        for ticket in &mut tickets {
            assert_eq!(free.poll(ticket, &mut waker()), None);
        }
        assert!(free.give_back(0).is_some(), "the first is woken");
        assert_eq!(free.take(), None, "granted is not free");
        assert_eq!(free.poll(&mut tickets[1], &mut waker()), None);
        assert_eq!(free.poll(&mut tickets[0], &mut waker()), Some(0));
        assert_eq!(tickets[0], None);
    }

    #[test]
    fn who_leaves_takes_what_was_granted_and_a_stale_waker_with_him() {
        let mut free = Free::new(1);
        let (mut first, mut second) = (None, None);
        assert_eq!(free.take(), Some(0));
        assert_eq!(free.poll(&mut first, &mut waker()), None);
        assert_eq!(free.poll(&mut second, &mut waker()), None);
        let mut again = waker();
        assert_eq!(free.poll(&mut second, &mut again), None);
        assert!(again.is_some(), "the waker that was there comes back to be dropped");
        free.give_back(0);
        let (granted, waker) = free.leave(first.unwrap());
        assert!(granted == Some(0) && waker.is_none());
        assert!(free.give_back(0).is_some());
        assert_eq!(free.poll(&mut second, &mut None), Some(0));
        free.give_back(0);
        assert_eq!(free.count(), 1);
    }
}
