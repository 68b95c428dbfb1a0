use super::{is_ready, settle};
use crate::common::run;
use annulus::sync::Mutex;
use annulus::{spawn, yield_now};
use std::rc::Rc;

#[test]
fn one_task_at_a_time_in_the_order_of_arrival() {
    run(async {
        let log = Rc::new(Mutex::new(Vec::new()));
        let tasks: Vec<_> = (0..10)
            .map(|number| {
                let log = log.clone();
                spawn(async move {
                    let mut locked = log.lock().await;
                    locked.push(number);
                    yield_now().await;
                    locked.push(number);
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*log.lock().await, (0..10).flat_map(|number| [number; 2]).collect::<Vec<_>>());
        Ok(())
    });
}

#[test]
fn a_panic_unlocks_it_and_a_lock_given_up_goes_to_the_next() {
    run(async {
        let value = Rc::new(Mutex::new(1));
        let panics = value.clone();
        let task = spawn(async move {
            *panics.lock().await = 2;
            let _locked = panics.lock().await;
            yield_now().await;
            panic!("on purpose");
        });
        settle().await;
        assert!(task.await.is_err());
        let mut locked = value.try_lock().expect("unlocked");
        assert_eq!(std::mem::replace(&mut *locked, 3), 2);
        assert!(format!("{value:?}").contains("locked"));
        let (mut first, mut second) = (value.lock(), value.lock());
        assert!(!is_ready(&mut first).await && !is_ready(&mut second).await);
        drop(locked);
        assert!(value.try_lock().is_none(), "it is for those in line");
        drop(first);
        assert_eq!(*second.await, 3);
        Ok(())
    });
}
