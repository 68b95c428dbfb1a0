use crate::common::run;
use annulus::task::{Id, JoinSet, id, try_id, yield_now};
use annulus::{handle, spawn};
use std::cell::Cell;
use std::collections::HashSet;
use std::rc::Rc;

/// Records the id of the task that drops it.
struct Noted(Rc<Cell<Option<Id>>>);

impl Drop for Noted {
    fn drop(&mut self) {
        self.0.set(try_id());
    }
}

#[test]
fn a_task_has_a_unique_id() {
    assert_eq!(try_id(), None, "an ID exists outside a runtime");
    run(async {
        assert_eq!(try_id(), None, "the root future has an ID");
        let mut tasks = Vec::new();
        for _ in 0..100 {
            let task = spawn(async {
                let first = id();
                // Other tasks run in between.
                yield_now().await;
                assert_eq!(try_id(), Some(first));
                spawn(async move { assert_ne!(id(), first) }).await.unwrap();
                first
            });
            tasks.push((task.id(), task));
        }
        yield_now().await;
        assert_eq!(try_id(), None);
        let listed = handle()?.tasks().await?;
        let listed: HashSet<Id> = listed.iter().map(|task| task.id).collect();
        let mut ids = HashSet::new();
        for (known, task) in tasks {
            assert!(listed.contains(&known), "{known} is not listed");
            assert_eq!(task.abort_handle().id(), known);
            assert!(ids.insert(known), "{known} was given to two tasks");
            assert_eq!(task.await.unwrap(), known);
        }
        Ok(())
    });
}

#[test]
fn a_task_spawned_elsewhere_has_the_id_of_its_handle() {
    run(async {
        let runtime = handle()?;
        let spawned = std::thread::spawn(move || {
            let one = runtime.spawn(async { id() }).unwrap();
            let other = runtime.spawn_with(|| async { id() }).unwrap();
            [(one.id(), one), (other.id(), other)]
        });
        let [(first, one), (known, other)] = spawned.join().unwrap();
        assert_eq!(one.await.unwrap(), first);
        assert_eq!(other.await.unwrap(), known);
        assert!(!known.to_string().is_empty() && format!("{known:?}").contains(&known.to_string()));
        Ok(())
    });
}

#[test]
fn a_task_that_ends_early_has_its_id_to_the_end() {
    run(async {
        let noted = Rc::new(Cell::new(None));
        let held = Noted(noted.clone());
        let task = spawn(async move {
            let _held = held;
            std::future::pending::<()>().await;
        });
        let known = task.id();
        yield_now().await;
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
        assert_eq!(noted.get(), Some(known));

        // The id is also known after a panic, and for a task in a `JoinSet`.
        let panics = spawn(async {
            if true {
                panic!("on purpose")
            }
        });
        assert!(panics.await.unwrap_err().is_panic());
        assert_eq!(try_id(), None);
        let mut set = JoinSet::new();
        let known = set.spawn(async { id() }).id();
        assert_eq!(set.join_next().await.unwrap().unwrap(), known);
        Ok(())
    });
}
