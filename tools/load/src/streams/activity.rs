//! The activity of a client, as the sweep of its thread sees it, and how the sweep reaches the client.

use std::cell::{Cell, OnceCell};
use std::task::{Context, Waker};

/// The stage of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    /// It connects, or waits before it does.
    Connecting,
    /// It sends requests and receives replies.
    #[default]
    Exchanging,
    /// Every reply has arrived, and only the server's close is awaited.
    Closing,
}

/// The activity of one client.
#[derive(Debug, Default)]
pub(super) struct Activity {
    changes: Cell<u64>,
    in_flight: Cell<u32>,
    stage: Cell<Stage>,
    /// The sweep has found that the server is silent.
    has_expired: Cell<bool>,
    waker: OnceCell<Waker>,
}

impl Activity {
    /// How often bytes were sent or received.
    pub(super) fn changes(&self) -> u64 {
        self.changes.get()
    }

    /// Whether a reply is awaited.
    pub(super) fn is_waiting(&self) -> bool {
        self.in_flight.get() > 0
    }

    pub(super) fn stage(&self) -> Stage {
        self.stage.get()
    }

    pub(super) fn set_stage(&self, stage: Stage) {
        self.stage.set(stage);
        self.has_expired.set(false);
        self.touch();
    }

    pub(super) fn touch(&self) {
        self.changes.set(self.changes.get().wrapping_add(1));
    }

    /// `in_flight` requests are in flight now.
    pub(super) fn update(&self, in_flight: usize) {
        self.touch();
        self.in_flight.set(in_flight as u32);
    }

    /// The client fails with a time-out.
    pub(super) fn expire(&self) {
        self.has_expired.set(true);
        self.wake();
    }

    pub(super) fn has_expired(&self) -> bool {
        self.has_expired.get()
    }

    /// Keeps the waker of the client's task.
    pub(super) fn register(&self, cx: &Context<'_>) {
        self.waker.get_or_init(|| cx.waker().clone());
    }

    /// Has the client look at its state.
    pub(super) fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake_by_ref();
        }
    }
}
