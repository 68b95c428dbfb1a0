use super::settle;
use crate::common::run;
use annulus::spawn;
use annulus::sync::broadcast::{self, RecvError, SendError, TryRecvError};
use std::rc::Rc;

#[test]
fn every_receiver_gets_every_value_and_none_is_kept() {
    run(async {
        let (sender, first) = broadcast::channel(1000);
        let receivers: Vec<_> = (0..3).map(|_| sender.subscribe()).chain([first]).collect();
        let all = async |mut receiver: broadcast::Receiver<Rc<u32>>| {
            let mut got = Vec::new();
            while let Ok(value) = receiver.recv().await {
                got.push(*value);
            }
            got
        };
        let tasks: Vec<_> = receivers.into_iter().map(|receiver| spawn(all(receiver))).collect();
        let kept = Rc::new(99);
        for number in 0..500 {
            assert_eq!(sender.send(Rc::new(number)).unwrap(), 4);
        }
        sender.send(kept.clone()).unwrap();
        while !sender.is_empty() {
            settle().await;
        }
        assert_eq!(Rc::strong_count(&kept), 1, "what all have got is dropped");
        drop(sender);
        for task in tasks {
            assert_eq!(task.await.unwrap(), (0..500).chain([99]).collect::<Vec<_>>());
        }
        Ok(())
    });
}

#[test]
fn a_receiver_that_is_too_slow_is_told_how_much_it_missed() {
    run(async {
        let (sender, mut receiver) = broadcast::channel(2);
        (1..=5).for_each(|number| assert_eq!(sender.send(number), Ok(1)));
        assert_eq!((receiver.len(), sender.len()), (5, 2));
        assert_eq!(receiver.recv().await, Err(RecvError::Lagged(3)));
        assert_eq!((receiver.recv().await, receiver.try_recv()), (Ok(4), Ok(5)));
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
        drop(sender);
        assert_eq!(receiver.recv().await, Err(RecvError::Closed));
        Ok(())
    });
}

#[test]
fn a_receiver_that_goes_gives_up_what_it_had_not_got() {
    run(async {
        let (sender, slow) = broadcast::channel(10);
        let mut fast = sender.subscribe();
        (1..=3).for_each(|number| assert_eq!(sender.send(number), Ok(2)));
        assert_eq!((fast.recv().await, fast.recv().await), (Ok(1), Ok(2)));
        assert_eq!(sender.len(), 3);
        drop(slow);
        assert_eq!(sender.len(), 1);
        let late = fast.resubscribe();
        assert!(late.is_empty() && fast.recv().await == Ok(3));
        drop((fast, late));
        assert_eq!(sender.send(4), Err(SendError(4)));
        Ok(())
    });
}
