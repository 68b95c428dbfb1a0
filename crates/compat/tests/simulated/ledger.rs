//! The service's data: deposits by their idempotency keys, as in a database that survives a crash.

use annulus::time::sleep;
use annulus_compat::OnThread;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long it takes the database to store a deposit.
const STORES: Duration = Duration::from_secs(1);

/// Whether a deposit looks for its key when it is stored, too. Without, two attempts at one deposit may both be stored: the planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checks {
    Twice,
    OnlyBefore,
}

/// A ledger. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Ledger {
    accounts: Arc<Mutex<Accounts>>,
    checks: Checks,
}

#[derive(Default)]
struct Accounts {
    balance: u64,
    /// How often each deposit was stored, and its amount.
    stored: BTreeMap<u64, (u32, u64)>,
}

impl Ledger {
    pub(crate) fn new(checks: Checks) -> Self {
        Self { accounts: Arc::default(), checks }
    }

    fn with<R>(&self, act: impl FnOnce(&mut Accounts) -> R) -> R {
        act(&mut self.accounts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Stores a deposit, unless it was before. It may be called again with the same key, for an answer that was lost.
    pub(crate) async fn deposit(&self, key: u64, amount: u64) {
        if self.with(|accounts| accounts.stored.contains_key(&key)) {
            return;
        }
        let ledger = self.clone();
        // A task of its own, so that a client that leaves does not end it half-way. Its handle stays on its thread, and axum's handlers
        // have to be `Send`.
        let stored = annulus::spawn(async move {
            sleep(STORES).await;
            ledger.with(|accounts| accounts.store(key, amount, ledger.checks));
        });
        OnThread::new(stored).await.expect("it does not panic");
    }

    /// The balance.
    pub(crate) fn balance(&self) -> u64 {
        self.with(|accounts| accounts.balance)
    }

    /// The first deposit that was stored more than once.
    pub(crate) fn stored_twice(&self) -> Option<u64> {
        self.with(|accounts| {
            let mut twice = accounts.stored.iter().filter(|(_, (times, _))| *times > 1);
            twice.next().map(|(key, _)| *key)
        })
    }

    /// How many deposits there are, and what they amount to if each counts once.
    pub(crate) fn totals(&self) -> (usize, u64) {
        self.with(|accounts| {
            let amounts = accounts.stored.values().map(|(_, amount)| amount);
            (accounts.stored.len(), amounts.sum())
        })
    }
}

impl Accounts {
    fn store(&mut self, key: u64, amount: u64, checks: Checks) {
        if checks == Checks::Twice && self.stored.contains_key(&key) {
            return;
        }
        self.balance += amount;
        self.stored.entry(key).or_insert((0, amount)).0 += 1;
    }
}
