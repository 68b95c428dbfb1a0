//! Tasks that wait for the same thing, of which each may take one.

use std::task::{Context, Waker};

#[derive(Debug)]
enum Seat {
    Free,
    Waiting(Waker),
    /// Woken, and not heard of since.
    Woken,
}

impl Seat {
    /// False where nobody waits here.
    #[inline]
    fn wake(&mut self, wakes: &mut Vec<Waker>) -> bool {
        if !matches!(self, Self::Waiting(_)) {
            return false;
        }
        if let Self::Waiting(waker) = std::mem::replace(self, Self::Woken) {
            wakes.push(waker);
        }
        true
    }
}

/// Who waits, in seats that are used again.
///
/// Each arrival wakes one. Who was woken and leaves without taking anything must see to it that the next one is woken:
/// [`leave`](Self::leave) tells.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    seats: Vec<Seat>,
    /// The one of these that a poll function keeps for whoever calls it.
    polled: Option<u32>,
}

impl Waiters {
    /// Notes that a task waits; `place` is its seat, taken if it has none. A waker that goes lands on `drops`.
    #[inline]
    pub(crate) fn wait(
        &mut self,
        place: &mut Option<u32>,
        drops: &mut Vec<Waker>,
        cx: &Context<'_>,
    ) {
        let place = *place.get_or_insert_with(|| self.seat());
        let seat = &mut self.seats[place as usize];
        match seat {
            Seat::Waiting(waker) if waker.will_wake(cx.waker()) => {}
            _ => {
                if let Seat::Waiting(stale) =
                    std::mem::replace(seat, Seat::Waiting(cx.waker().clone()))
                {
                    drops.push(stale);
                }
            }
        }
    }

    /// Gives a seat up. True where its task had been woken: what that was for may still be there.
    #[inline]
    pub(crate) fn leave(&mut self, place: &mut Option<u32>, drops: &mut Vec<Waker>) -> bool {
        let Some(place) = place.take() else { return false };
        self.polled.take_if(|polled| *polled == place);
        let seat = std::mem::replace(&mut self.seats[place as usize], Seat::Free);
        while matches!(self.seats.last(), Some(Seat::Free)) {
            self.seats.pop();
        }
        match seat {
            Seat::Waiting(waker) => drops.push(waker),
            Seat::Woken => return true,
            Seat::Free => {}
        }
        false
    }

    /// Tells which seat, if any, a poll function keeps. Who sits there may have gone without a word, as no future can: each
    /// arrival wakes it besides another one, never instead.
    pub(crate) fn set_polled(&mut self, place: Option<u32>) {
        self.polled = place;
    }

    /// Wakes who polled, and one of the others who wait; false where none of these does.
    #[inline]
    pub(crate) fn wake_one(&mut self, wakes: &mut Vec<Waker>) -> bool {
        if self.polled.is_some() {
            self.wake_polled(wakes);
        }
        self.seats.iter_mut().any(|seat| seat.wake(wakes))
    }

    #[inline(never)]
    fn wake_polled(&mut self, wakes: &mut Vec<Waker>) {
        if let Some(polled) = self.polled {
            self.seats[polled as usize].wake(wakes);
        }
    }

    /// Wakes everybody.
    #[inline]
    pub(crate) fn wake_all(&mut self, wakes: &mut Vec<Waker>) {
        self.seats.iter_mut().for_each(|seat| _ = seat.wake(wakes));
    }

    /// Nobody has a seat.
    pub(crate) fn is_empty(&self) -> bool {
        self.seats.is_empty()
    }

    pub(crate) fn include(&self, task: &Waker) -> bool {
        self.seats.iter().any(|seat| matches!(seat, Seat::Waiting(waker) if waker.will_wake(task)))
    }

    fn seat(&mut self) -> u32 {
        let free = self.seats.iter().position(|seat| matches!(seat, Seat::Free));
        free.unwrap_or_else(|| {
            self.seats.push(Seat::Free);
            self.seats.len() - 1
        }) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn each_arrival_wakes_another_one_and_who_leaves_passes_it_on() {
        let (mut waiters, mut wakes, mut drops) = (Waiters::default(), Vec::new(), Vec::new());
        let counts: Vec<Arc<Count>> = (0..3).map(|_| Arc::default()).collect();
        let mut places = [None; 3];
        for (count, place) in counts.iter().zip(&mut places) {
            let waker = Waker::from(count.clone());
            waiters.wait(place, &mut drops, &Context::from_waker(&waker));
        }
        assert!(waiters.wake_one(&mut wakes) && waiters.wake_one(&mut wakes));
        wakes.drain(..).for_each(Waker::wake);
        let woken: Vec<usize> = counts.iter().map(|c| c.0.load(Ordering::Relaxed)).collect();
        assert_eq!(woken, [1, 1, 0]);
        assert!(waiters.leave(&mut places[0], &mut drops), "it had been woken");
        assert!(!waiters.leave(&mut places[2], &mut drops), "it had not");
        assert!(!waiters.wake_one(&mut wakes), "nobody waits any more");
        waiters.leave(&mut places[1], &mut drops);
        assert!(waiters.is_empty() && drops.len() == 1);
    }

    #[test]
    fn who_polled_is_woken_besides_another_one() {
        let (mut waiters, mut wakes, mut drops) = (Waiters::default(), Vec::new(), Vec::new());
        let cx = Context::from_waker(Waker::noop());
        let mut places = [None; 3];
        for place in &mut places {
            waiters.wait(place, &mut drops, &cx);
        }
        waiters.set_polled(places[2]);
        assert!(waiters.wake_one(&mut wakes));
        assert_eq!(wakes.len(), 2, "who polled, and the first");
        assert!(waiters.wake_one(&mut wakes));
        assert!(!waiters.wake_one(&mut wakes), "who polled has not come back");
        waiters.wait(&mut places[2], &mut drops, &cx);
        assert!(waiters.leave(&mut places[0], &mut drops));
        assert!(!waiters.leave(&mut places[2], &mut drops));
        assert!(!waiters.wake_one(&mut wakes) && wakes.len() == 3);
    }
}
