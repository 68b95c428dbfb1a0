//! Sets of tasks, task ids and aborts.

mod abort;
mod id;
mod join_set;

use std::cell::Cell;
use std::rc::Rc;

#[derive(Clone, Default)]
struct Drops(Rc<Cell<usize>>);

impl Drops {
    /// Returns a value that counts its own drop.
    fn counted(&self) -> Counted {
        Counted(self.0.clone())
    }

    fn count(&self) -> usize {
        self.0.get()
    }
}

struct Counted(Rc<Cell<usize>>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

async fn hold(_held: Counted) {
    std::future::pending::<()>().await;
}
