//! The timer that trims the pools some time after receives.
//!
//! A timeout in every wait would cost something in every turn. A timer that is started again only
//! after receives costs almost nothing.
#![allow(unsafe_code)]

use super::owned_descriptor::OwnedDescriptor;
use crate::pool::Trim;
use annulus_kernel::{Fd, Kernel};
use std::io;
use std::rc::Rc;

/// The timer, and the event count when it was started.
#[derive(Debug)]
pub(super) struct TrimTimer {
    timer: OwnedDescriptor,
    /// Number of events at the start; `None` while the timer is not running.
    started_at: Option<u64>,
}

impl TrimTimer {
    pub(super) fn new(kernel: &Rc<dyn Kernel>) -> io::Result<Self> {
        // SAFETY: the call creates a new descriptor.
        let timer = unsafe { OwnedDescriptor::open(kernel, |kernel| kernel.timer())? };
        Ok(Self { timer, started_at: None })
    }

    pub(super) fn fd(&self) -> Fd {
        self.timer.fd
    }

    #[inline]
    pub(super) fn is_running(&self) -> bool {
        self.started_at.is_some()
    }

    pub(super) fn start(&mut self, events: u64) {
        // This cannot fail for a valid time. If it did, the pools would keep their memory.
        _ = self.timer.kernel.set_timer(self.timer.fd, Trim::DELAY);
        self.started_at = Some(events);
    }

    /// Handles the expiry of the timer, and returns the trim to carry out, which depends on whether
    /// an event has arrived since the start.
    pub(super) fn expired(&mut self, events: u64) -> Option<Trim> {
        let started_at = self.started_at.take()?;
        Some(Trim::after(started_at == events))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use annulus_kernel::Linux;

    #[test]
    fn all_is_trimmed_after_silence_and_the_surplus_after_events() {
        let kernel: Rc<dyn Kernel> = Rc::new(Linux);
        let mut timer = TrimTimer::new(&kernel).unwrap();
        timer.start(7);
        assert!(timer.is_running());
        assert_eq!(
            timer.expired(8),
            Some(Trim::Surplus),
            "a timer during which an event arrived did not trim the surplus"
        );
        assert!(!timer.is_running());
        timer.start(8);
        assert_eq!(timer.expired(8), Some(Trim::Everything));
        assert_eq!(timer.expired(8), None, "the timer expired twice");
    }
}
