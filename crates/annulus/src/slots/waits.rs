//! The waits of tasks: collected in one pass over all slots, however many tasks there are.

use crate::unwind::contained;
use std::collections::HashMap;
use std::task::Waker;

/// A collection of what each of some tasks waits for, or of the wakers of all that wait.
pub(crate) struct Waits {
    /// The index of each task, by the data of its waker.
    tasks: HashMap<*const (), usize>,
    wakers: Vec<Waker>,
    found: Vec<Vec<String>>,
    /// Every waker is kept, whatever it waits for.
    keeps_all: bool,
}

impl Waits {
    /// A collection for the tasks with these wakers, which wait for nothing yet.
    pub(crate) fn new(wakers: Vec<Waker>) -> Self {
        let tasks = wakers.iter().enumerate().map(|(task, waker)| (waker.data(), task)).collect();
        let found = vec![Vec::new(); wakers.len()];
        Self { tasks, wakers, found, keeps_all: false }
    }

    /// A collection for all that wait, tasks of this runtime or not.
    pub(crate) fn of_all() -> Self {
        Self { keeps_all: true, ..Self::new(Vec::new()) }
    }

    /// A waker waits for something; nothing happens if it is no task's.
    pub(crate) fn note(&mut self, waker: &Waker, what: impl FnOnce() -> String) {
        if self.keeps_all {
            self.wakers.extend(contained(|| waker.clone()));
            return;
        }
        let Some(&task) = self.tasks.get(&waker.data()) else { return };
        // Another kind of waker may have the same data.
        if self.wakers[task].will_wake(waker) {
            self.found[task].push(what());
        }
    }

    /// The wakers, for `of_all`.
    pub(crate) fn into_wakers(self) -> Vec<Waker> {
        self.wakers
    }

    /// The waits of each task, in the order of the tasks.
    pub(crate) fn into_found(self) -> Vec<Vec<String>> {
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::task::Wake;

    struct Task;

    impl Wake for Task {
        fn wake(self: Arc<Self>) {}
    }

    #[test]
    fn what_is_noted_belongs_to_the_task_of_the_waker() {
        let [one, two, other] = [(); 3].map(|()| Waker::from(Arc::new(Task)));
        let mut waits = Waits::new(vec![one.clone(), two.clone()]);
        waits.note(&two.clone(), || "for a".into());
        waits.note(&two, || "for b".into());
        waits.note(&other, || unreachable!("it is no task's"));
        waits.note(Waker::noop(), || unreachable!("it is no task's"));
        assert_eq!(waits.into_found(), [vec![], vec!["for a".to_owned(), "for b".into()]]);
    }
}
