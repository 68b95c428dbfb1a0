//! The failures of a run, which its threads share.

use crate::fault::Fault;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Most bytes of a refusal that are shown.
const SHOWN: usize = 200;

/// Failures by kind, and the first one as text; and the first reply that is a refusal.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    pub(crate) by_kind: BTreeMap<String, u64>,
    pub(crate) first: Option<String>,
    pub(crate) refusal: Option<String>,
}

/// The text of the first reply that is a refusal, which the threads of a run share.
#[derive(Clone, Debug, Default)]
pub(crate) struct FirstRefusal(Arc<OnceLock<String>>);

impl FirstRefusal {
    /// A reply is a refusal, with this text.
    pub(crate) fn note<T: AsRef<[u8]>>(&self, text: impl FnOnce() -> T) {
        self.0.get_or_init(|| {
            let text = text();
            let (text, rest) = text.as_ref().split_at(text.as_ref().len().min(SHOWN));
            let more = if rest.is_empty() { "" } else { " …" };
            format!("{}{more}", text.escape_ascii())
        });
    }
}

/// The failures of a run.
#[derive(Debug, Default)]
pub(crate) struct FaultLog {
    faults: Mutex<Faults>,
    pub(crate) refusal: FirstRefusal,
    /// No other memory is read because of it, so relaxed order is enough.
    is_interrupted: AtomicBool,
}

impl FaultLog {
    /// Records that `client` has failed.
    pub(crate) fn record(&self, client: usize, fault: &Fault) {
        if self.is_interrupted() {
            return;
        }
        let mut faults = self.lock();
        *faults.by_kind.entry(fault.kind.0.to_owned()).or_default() += 1;
        faults.first.get_or_insert_with(|| format!("client {client}: {}", fault.detail));
    }

    /// The run is interrupted: connections that end now have not failed.
    pub(crate) fn interrupt(&self) {
        self.is_interrupted.store(true, Relaxed);
    }

    /// Whether the run is interrupted.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.is_interrupted.load(Relaxed)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().by_kind.is_empty()
    }

    /// Takes what was recorded.
    pub(crate) fn take(&self) -> Faults {
        let refusal = self.refusal.0.get().cloned();
        Faults { refusal, ..std::mem::take(&mut *self.lock()) }
    }

    /// The data is consistent at any time, even if a thread panicked with the lock.
    fn lock(&self) -> MutexGuard<'_, Faults> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
