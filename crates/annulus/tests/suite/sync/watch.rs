use super::{is_ready, settle};
use crate::common::run;
use annulus::spawn;
use annulus::sync::watch::{self, SendError};

#[test]
fn receivers_see_the_latest_value_once() {
    run(async {
        let (sender, mut receiver) = watch::channel(0);
        assert_eq!((receiver.has_changed(), *receiver.borrow()), (Ok(false), 0));
        assert!(!is_ready(&mut Box::pin(receiver.changed())).await);
        (1..=3).for_each(|number| sender.send(number).unwrap());
        receiver.changed().await.unwrap();
        assert_eq!(*receiver.borrow(), 3);
        assert!(!is_ready(&mut Box::pin(receiver.changed())).await);
        let mut late = sender.subscribe();
        assert!(!is_ready(&mut Box::pin(late.changed())).await, "the first counts as seen");
        Ok(())
    });
}

#[test]
fn all_that_wait_are_told_and_a_value_held_stays() {
    run(async {
        let (sender, receiver) = watch::channel(vec![1]);
        let wait = |mut receiver: watch::Receiver<Vec<u32>>| async move {
            receiver.wait_for(|value| value.len() == 3).await.map(|value| value.to_vec())
        };
        let tasks: Vec<_> = (0..10).map(|_| spawn(wait(receiver.clone()))).collect();
        settle().await;
        let first = receiver.borrow();
        sender.send_modify(|value| value.push(2));
        settle().await;
        assert!(tasks.iter().all(|task| !task.is_finished()));
        assert!(!sender.send_if_modified(|_| false));
        sender.send_modify(|value| value.push(3));
        for task in tasks {
            assert_eq!(task.await.unwrap(), Ok(vec![1, 2, 3]));
        }
        assert_eq!(*first, [1]);
        assert_eq!(sender.send_replace(vec![]).len(), 3);
        Ok(())
    });
}

#[test]
fn the_end_of_either_side_is_told_to_the_other() {
    run(async {
        let (sender, mut receiver) = watch::channel(1);
        sender.send(2).unwrap();
        drop(sender);
        assert_eq!(receiver.changed().await, Ok(()), "the last value first");
        assert!(receiver.changed().await.is_err());
        assert!(receiver.wait_for(|value| *value == 9).await.is_err());

        let (sender, receiver) = watch::channel(1);
        let waits = sender.clone();
        let waits = spawn(async move { waits.closed().await });
        let second = receiver.clone();
        settle().await;
        drop(receiver);
        settle().await;
        assert!(!waits.is_finished());
        drop(second);
        waits.await.unwrap();
        assert_eq!(sender.send(3), Err(SendError(3)));
        Ok(())
    });
}
