//! A timer of a connection.

use crate::clock::Origin;
use quinn::AsyncTimer;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

/// A timer in quinn's moments.
#[derive(Debug)]
pub(super) struct Timer {
    origin: Origin,
    timer: crate::timer::Timer,
}

impl Timer {
    pub(super) fn new(origin: Origin, deadline: Instant) -> Self {
        Self { origin, timer: crate::timer::Timer::new(origin.to_runtime(deadline)) }
    }
}

impl AsyncTimer for Timer {
    fn reset(mut self: Pin<&mut Self>, deadline: Instant) {
        let deadline = self.origin.to_runtime(deadline);
        self.timer.reset(deadline);
    }

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.timer).poll(cx)
    }
}
