//! Loads that take turns, so that all servers are measured within tens of milliseconds.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Loads on different threads. Only one runs at a time, in the order of their numbers.
#[derive(Debug)]
pub(crate) struct TurnOrder {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// Whether the load with this number still takes part.
    is_present: Vec<bool>,
    /// The load whose turn it is.
    current: usize,
}

/// A load that takes turns. When dropped, it no longer takes part.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    order: &'a TurnOrder,
    number: usize,
}

impl TurnOrder {
    /// Creates an order of this many loads. Number 0 has the first turn.
    pub(crate) fn new(loads: usize) -> TurnOrder {
        let state = State { is_present: vec![true; loads], current: 0 };
        TurnOrder { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Waits until it is the turn of a load. Every load must call this once.
    pub(crate) fn start(&self, number: usize) -> Turn<'_> {
        let turn = Turn { order: self, number };
        turn.wait(self.lock());
        turn
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pass_on(&self, state: &mut State) {
        let count = state.is_present.len();
        let mut others = (1..count).map(|step| (state.current + step) % count);
        state.current = others.find(|one| state.is_present[*one]).unwrap_or(state.current);
        self.changed.notify_all();
    }
}

impl Turn<'_> {
    /// Ends the turn, and waits for the next one.
    pub(crate) fn pass(&self) {
        let mut state = self.order.lock();
        self.order.pass_on(&mut state);
        self.wait(state);
    }

    fn wait(&self, state: MutexGuard<'_, State>) {
        let is_waiting = |state: &mut State| state.current != self.number;
        let state = self.order.changed.wait_while(state, is_waiting);
        drop(state.unwrap_or_else(PoisonError::into_inner));
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.order.lock();
        state.is_present[self.number] = false;
        self.order.pass_on(&mut state);
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn one_load_runs_at_a_time_and_one_that_ends_is_skipped() {
        let (turns, order) = (TurnOrder::new(3), Mutex::new(Vec::new()));
        let run = |number: usize, count: usize| {
            let turn = turns.start(number);
            for left in (0..count).rev() {
                order.lock().expect("a load panicked").push(number);
                if left > 0 {
                    turn.pass();
                }
            }
        };
        thread::scope(|scope| {
            for (number, count) in [(2, 2), (0, 4), (1, 1)] {
                scope.spawn(move || run(number, count));
            }
        });
        let order = order.into_inner().expect("a load panicked");
        assert_eq!(order, [0, 1, 2, 0, 2, 0, 0]);
    }
}
