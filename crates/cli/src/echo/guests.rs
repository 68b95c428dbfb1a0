//! Who is connected, and when he is asked to leave: the same rules for tasks and for threads.
//!
//! No connection has a timer. Each counts what it does, and a sweep looks whose count stands still: past the idle
//! time-out, or after a signal. Who is to go is first asked, and finishes what it has; who then lingers is cut off.

use super::stats::Tally;
use annulus_load::clock;
use annulus_load::quiet::{self, Quiet};
use std::time::Duration;

/// After a signal, a connection on which nothing moves for this long has nothing in flight: more than a round trip
/// around the world.
const AT_REST: Duration = Duration::from_millis(250);
/// How long before the grace ends everyone is asked.
const LAST_CALL: Duration = Duration::from_millis(100);
/// How long a connection may linger once it was asked to leave.
const LINGER: Duration = Duration::from_millis(500);
/// How often to look while leaving.
pub(super) const LEAVING_INTERVAL: Duration = Duration::from_millis(10);

/// A connection, as the rules see it.
pub(super) trait Guest: Clone {
    /// Changes whenever bytes move.
    fn beats(&self) -> u64;
    /// Whether there are bytes that were received and not yet sent.
    fn is_busy(&self) -> bool;
    /// What it has done.
    fn tally(&self) -> Tally;
    /// Has it finish what it has received, and close.
    fn ask(&self);
    /// Ends it now.
    fn cut_off(&self);
}

/// All connections there are, and what those did that are gone.
pub(super) struct Guests<G> {
    /// By number; a number is given again once its guest has left. A map would take twice the memory.
    seats: Vec<Option<Seat<G>>>,
    vacant: Vec<usize>,
    gone: Tally,
}

struct Seat<G> {
    guest: G,
    quiet: Quiet,
    asked: bool,
}

/// What to do to a guest; done by the caller, when it holds no borrow or lock on the register.
pub(super) enum Step<G> {
    Ask(G),
    CutOff(G),
}

/// Why a sweep is made.
#[derive(Clone, Copy, Debug)]
pub(super) enum Sweep {
    /// Connections at rest for this long go.
    Idle(Duration),
    /// A signal came this long ago; by the end of the grace everyone must have gone.
    Leaving { elapsed: Duration, grace: Duration },
}

impl<G: Guest> Guests<G> {
    pub(super) fn new() -> Guests<G> {
        Guests { seats: Vec::new(), vacant: Vec::new(), gone: Tally::default() }
    }

    /// Lets one in; the number is for [`Guests::leave`].
    pub(super) fn admit(&mut self, guest: G) -> usize {
        let quiet = Quiet::new(guest.beats(), clock::now());
        let number = self.vacant.pop().unwrap_or_else(|| {
            self.seats.push(None);
            self.seats.len() - 1
        });
        self.seats[number] = Some(Seat { guest, quiet, asked: false });
        number
    }

    pub(super) fn leave(&mut self, number: usize) {
        if let Some(seat) = self.seats[number].take() {
            self.gone += seat.guest.tally();
            self.vacant.push(number);
        }
    }

    pub(super) fn count(&self) -> usize {
        self.seats.len() - self.vacant.len()
    }

    /// What all of them did.
    pub(super) fn tally(&self) -> Tally {
        let mut tally = self.gone;
        self.seats.iter().flatten().for_each(|seat| tally += seat.guest.tally());
        tally
    }

    /// Finds out who has to go.
    pub(super) fn sweep(&mut self, why: Sweep) -> Vec<Step<G>> {
        let now = clock::now();
        self.seats.iter_mut().flatten().filter_map(|seat| seat.step(why, now)).collect()
    }
}

impl<G: Guest> Seat<G> {
    fn step(&mut self, why: Sweep, now: Duration) -> Option<Step<G>> {
        let quiet = self.quiet.lasts(self.guest.beats(), now);
        let due = why.is_last()
            || quiet >= why.limit(self.asked) && !(why.spares_busy() && self.guest.is_busy());
        if due && (self.asked || why.is_last()) {
            return Some(Step::CutOff(self.guest.clone()));
        }
        if due || !self.asked && why.is_last_call() {
            self.asked = true;
            self.quiet = Quiet::new(self.guest.beats(), now);
            return Some(Step::Ask(self.guest.clone()));
        }
        None
    }
}

impl<G: Guest> Step<G> {
    pub(super) fn take(self) {
        match self {
            Step::Ask(guest) => guest.ask(),
            Step::CutOff(guest) => guest.cut_off(),
        }
    }
}

impl Sweep {
    /// How often to make it.
    pub(super) fn interval(self) -> Duration {
        match self {
            Sweep::Idle(limit) => quiet::sweep_interval(limit),
            Sweep::Leaving { .. } => LEAVING_INTERVAL,
        }
    }

    fn limit(self, asked: bool) -> Duration {
        match self {
            Sweep::Idle(limit) if asked => limit.min(LINGER),
            Sweep::Idle(limit) => limit,
            Sweep::Leaving { .. } => AT_REST,
        }
    }

    /// After a signal, who still has bytes to send may take the whole grace; an idle reader may not.
    fn spares_busy(self) -> bool {
        matches!(self, Sweep::Leaving { .. })
    }

    /// Shortly before the grace ends, those who never rest are asked too, to end after a whole answer.
    fn is_last_call(self) -> bool {
        matches!(self, Sweep::Leaving { elapsed, grace } if elapsed >= grace - (grace / 4).min(LAST_CALL))
    }

    /// The grace is over.
    pub(super) fn is_last(self) -> bool {
        matches!(self, Sweep::Leaving { elapsed, grace } if elapsed >= grace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;

    #[derive(Default)]
    struct Fake {
        beats: Cell<u64>,
        busy: Cell<bool>,
        asked: Cell<u32>,
        cut: Cell<u32>,
    }

    impl Guest for Rc<Fake> {
        fn beats(&self) -> u64 {
            self.beats.get()
        }
        fn is_busy(&self) -> bool {
            self.busy.get()
        }
        fn tally(&self) -> Tally {
            Tally { connections: 1, messages: self.beats.get(), bytes: 0, refused: 0 }
        }
        fn ask(&self) {
            self.asked.set(self.asked.get() + 1);
        }
        fn cut_off(&self) {
            self.cut.set(self.cut.get() + 1);
        }
    }

    const SECOND: Duration = Duration::from_secs(1);

    fn seat(guest: &Rc<Fake>) -> Seat<Rc<Fake>> {
        Seat { guest: Rc::clone(guest), quiet: Quiet::new(0, Duration::ZERO), asked: false }
    }

    /// Sweeps once at `now`; returns how often the guest was asked and cut off so far.
    fn sweep(seat: &mut Seat<Rc<Fake>>, why: Sweep, now: Duration) -> (u32, u32) {
        if let Some(step) = seat.step(why, now) {
            step.take();
        }
        (seat.guest.asked.get(), seat.guest.cut.get())
    }

    #[test]
    fn the_idle_are_asked_and_then_cut_off() {
        let guest = Rc::new(Fake::default());
        let mut seat = seat(&guest);
        let why = Sweep::Idle(3 * SECOND);
        assert_eq!(sweep(&mut seat, why, 2 * SECOND), (0, 0));
        assert_eq!(sweep(&mut seat, why, 3 * SECOND), (1, 0));
        assert_eq!(sweep(&mut seat, why, 3 * SECOND + LINGER / 2), (1, 0));
        assert_eq!(sweep(&mut seat, why, 3 * SECOND + LINGER), (1, 1));
    }

    #[test]
    fn who_moves_stays() {
        let guest = Rc::new(Fake::default());
        let mut seat = seat(&guest);
        for second in 1..10 {
            guest.beats.set(guest.beats.get() + 1);
            assert_eq!(sweep(&mut seat, Sweep::Idle(2 * SECOND), second * SECOND), (0, 0));
        }
    }

    #[test]
    fn after_a_signal_the_busy_are_spared_until_the_grace_ends() {
        let guest = Rc::new(Fake::default());
        guest.busy.set(true);
        let mut seat = seat(&guest);
        let at = |elapsed| Sweep::Leaving { elapsed, grace: 4 * SECOND };
        assert_eq!(sweep(&mut seat, at(SECOND), SECOND), (0, 0));
        assert_eq!(sweep(&mut seat, at(4 * SECOND - LAST_CALL), 4 * SECOND - LAST_CALL), (1, 0));
        assert_eq!(sweep(&mut seat, at(4 * SECOND), 4 * SECOND), (1, 1));
    }

    #[test]
    fn after_a_signal_those_at_rest_go_at_once() {
        let guest = Rc::new(Fake::default());
        let mut seat = seat(&guest);
        let at = |elapsed| Sweep::Leaving { elapsed, grace: 4 * SECOND };
        assert_eq!(sweep(&mut seat, at(AT_REST), AT_REST), (1, 0));
        assert_eq!(sweep(&mut seat, at(AT_REST * 2), AT_REST * 2), (1, 1));
    }

    #[test]
    fn without_grace_everyone_is_cut_off() {
        let guest = Rc::new(Fake::default());
        let mut seat = seat(&guest);
        let why = Sweep::Leaving { elapsed: Duration::ZERO, grace: Duration::ZERO };
        assert_eq!(sweep(&mut seat, why, Duration::ZERO), (0, 1));
    }

    #[test]
    fn the_tally_keeps_those_that_left() {
        let mut guests = Guests::new();
        let (one, two) = (Rc::new(Fake::default()), Rc::new(Fake::default()));
        let first = guests.admit(Rc::clone(&one));
        guests.admit(Rc::clone(&two));
        one.beats.set(3);
        two.beats.set(4);
        guests.leave(first);
        assert_eq!(guests.count(), 1);
        assert_eq!(guests.tally(), Tally { connections: 2, messages: 7, bytes: 0, refused: 0 });
        assert_eq!(guests.admit(one), first);
        assert_eq!(guests.count(), 2);
    }
}
