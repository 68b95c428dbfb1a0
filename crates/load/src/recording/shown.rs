//! An observer that is shown the intervals of a run.

use super::Collector;
use crate::run::{Observer, Progress};

/// Shows an observer each interval as it is complete, at the next progress.
pub(crate) struct Shown<'a> {
    pub(crate) observer: &'a mut dyn Observer,
    pub(crate) collector: &'a Collector,
}

impl Observer for Shown<'_> {
    fn window_opened(&mut self) {
        self.observer.window_opened();
    }

    fn window_closed(&mut self) {
        self.observer.window_closed();
    }

    fn progress(&mut self, progress: Progress) {
        self.collector.collect(|interval| self.observer.interval(interval));
        self.observer.progress(progress);
    }

    fn is_interrupted(&self) -> bool {
        self.observer.is_interrupted()
    }
}
