//! How long and how many.

use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) connections: usize,
    pub(super) header: Option<Duration>,
    pub(super) idle: Option<Duration>,
    pub(super) request: Option<Duration>,
    pub(super) write: Option<Duration>,
    pub(super) release: Option<Duration>,
    pub(super) drain: Option<Duration>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: usize::MAX,
            header: Some(Duration::from_secs(30)),
            idle: Some(Duration::from_secs(60)),
            request: None,
            write: Some(Duration::from_secs(60)),
            release: Some(Duration::from_secs(1)),
            drain: None,
        }
    }
}
