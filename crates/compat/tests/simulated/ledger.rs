//! The service's data: deposits with idempotency keys, as in a database that survives crashes.

use annulus::time::sleep;
use annulus_compat::OnThread;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Time that the database takes to store a deposit.
const STORE_TIME: Duration = Duration::from_secs(1);

/// The moments at which a deposit checks that its key is new. If it checks only before it waits for
/// the database, two attempts at one deposit may both be stored, which is the planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checks {
    Twice,
    OnlyBefore,
}

/// A ledger. Clones share its data.
#[derive(Clone)]
pub(crate) struct Ledger {
    accounts: Arc<Mutex<Accounts>>,
    checks: Checks,
}

#[derive(Default)]
struct Accounts {
    balance: u64,
    /// For each deposit, the number of times it was stored, and its amount.
    stored: BTreeMap<u64, (u32, u64)>,
}

impl Ledger {
    pub(crate) fn new(checks: Checks) -> Self {
        Self { accounts: Arc::default(), checks }
    }

    fn with<R>(&self, act: impl FnOnce(&mut Accounts) -> R) -> R {
        act(&mut self.accounts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Stores a deposit unless its key is already stored. A client whose response was lost repeats
    /// the call with the same key.
    pub(crate) async fn deposit(&self, key: u64, amount: u64) {
        if self.with(|accounts| accounts.stored.contains_key(&key)) {
            return;
        }
        let ledger = self.clone();
        // A separate task, so that a client that disconnects does not interrupt it. `OnThread`,
        // because axum's handlers must be `Send` and the task's handle is not.
        let stored = annulus::spawn(async move {
            sleep(STORE_TIME).await;
            ledger.with(|accounts| accounts.store(key, amount, ledger.checks));
        });
        OnThread::new(stored).await.expect("the deposit panicked");
    }

    pub(crate) fn balance(&self) -> u64 {
        self.with(|accounts| accounts.balance)
    }

    /// Returns the key of the first deposit that was stored more than once.
    pub(crate) fn stored_twice(&self) -> Option<u64> {
        self.with(|accounts| {
            let mut twice = accounts.stored.iter().filter(|(_, (times, _))| *times > 1);
            twice.next().map(|(key, _)| *key)
        })
    }

    /// Returns the number of deposits, and their sum if each counts once.
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
