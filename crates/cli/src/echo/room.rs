//! What the workers of a server share: how many connections there may be at once, and when to leave.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// The seats of a server. A lock when a connection comes and when it goes, none in between.
#[derive(Debug)]
pub(super) struct Room {
    seats: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    taken: usize,
    /// Acceptors that found no seat.
    waiting: Vec<Waker>,
    closed: bool,
    /// Who waits for that.
    leaving: Vec<Waker>,
}

/// A taken seat, free again when this is dropped.
#[derive(Debug)]
pub(super) struct Seat(Arc<Room>);

impl Room {
    pub(super) fn new(seats: usize) -> Arc<Room> {
        Arc::new(Room { seats, state: Mutex::default() })
    }

    /// Waits until there is a seat, without taking it.
    pub(super) async fn vacancy(self: &Arc<Self>) {
        drop(self.seat().await);
    }

    /// Waits for a seat and takes it.
    pub(super) async fn seat(self: &Arc<Self>) -> Seat {
        poll_fn(|cx| {
            let mut state = self.state();
            if state.taken < self.seats {
                state.taken += 1;
                return Poll::Ready(Seat(Arc::clone(self)));
            }
            state.waiting.push(cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Has all workers leave.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        let leaving = std::mem::take(&mut state.leaving);
        drop(state);
        leaving.into_iter().for_each(Waker::wake);
    }

    /// Waits until it is time to leave.
    pub(super) async fn closing(&self) {
        poll_fn(|cx| {
            let mut state = self.state();
            if state.closed {
                return Poll::Ready(());
            }
            state.leaving.push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Each change is one step: the state stays whole when a thread that held it panics.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.taken -= 1;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Wake};

    #[derive(Default)]
    struct Woken(std::sync::atomic::AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    }

    #[test]
    fn who_leaves_makes_room_for_who_waits() {
        let room = Room::new(1);
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut cx = Context::from_waker(&waker);
        let Poll::Ready(first) = pin!(room.seat()).poll(&mut cx) else { panic!("it is empty") };
        let mut second = pin!(room.seat());
        assert!(second.as_mut().poll(&mut cx).is_pending());
        drop(first);
        assert!(woken.0.load(std::sync::atomic::Ordering::Relaxed));
        assert!(pin!(room.vacancy()).poll(&mut cx).is_ready(), "looking takes nothing");
        assert!(second.poll(&mut cx).is_ready());
    }
}
