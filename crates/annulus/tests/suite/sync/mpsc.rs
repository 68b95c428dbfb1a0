use super::{is_ready, settle};
use crate::common::run;
use annulus::spawn;
use annulus::sync::mpsc::{self, SendError, TrySendError};
use std::cell::RefCell;
use std::rc::Rc;

#[test]
fn values_that_are_not_send_come_in_order_through_a_full_channel() {
    run(async {
        let (sender, mut receiver) = mpsc::channel(3);
        let sends = spawn(async move {
            for number in 0..1000 {
                sender.send(Rc::new(number)).await.unwrap();
            }
        });
        for number in 0..1000 {
            assert!(receiver.len() <= 3);
            assert_eq!(receiver.recv().await.as_deref(), Some(&number));
        }
        assert_eq!(receiver.recv().await, None);
        sends.await.unwrap();
        Ok(())
    });
}

#[test]
fn senders_have_their_turns_in_the_order_of_arrival() {
    run(async {
        let (sender, mut receiver) = mpsc::channel(1);
        sender.try_send(0).unwrap();
        for number in 1..=5 {
            let sender = sender.clone();
            spawn(async move { sender.send(number).await.unwrap() });
            settle().await;
        }
        let mut late = Box::pin(sender.send(6));
        assert!(!is_ready(&mut late).await);
        assert_eq!(sender.try_send(9), Err(TrySendError::Full(9)));
        for number in 0..=5 {
            assert_eq!(receiver.recv().await, Some(number));
            settle().await;
        }
        assert!(is_ready(&mut late).await);
        assert_eq!(receiver.try_recv(), Some(6));
        Ok(())
    });
}

#[test]
fn a_send_that_is_dropped_lets_the_next_one_go() {
    run(async {
        let (sender, mut receiver) = mpsc::channel(1);
        sender.try_send(1).unwrap();
        let (mut first, mut second) = (Box::pin(sender.send(2)), Box::pin(sender.send(3)));
        assert!(!is_ready(&mut first).await && !is_ready(&mut second).await);
        assert_eq!(receiver.try_recv(), Some(1));
        assert!(!is_ready(&mut second).await, "it is not its turn");
        drop(first);
        assert!(is_ready(&mut second).await);
        assert_eq!(receiver.try_recv(), Some(3));
        Ok(())
    });
}

#[test]
fn a_send_that_is_forgotten_stops_none() {
    run(async {
        let (sender, mut receiver) = mpsc::channel(1);
        sender.try_send(1).unwrap();
        let mut first = Box::pin(sender.send(2));
        assert!(!is_ready(&mut first).await);
        let other = sender.clone();
        let second = spawn(async move { other.send(3).await });
        settle().await;
        std::mem::forget(first);
        assert_eq!(receiver.recv().await, Some(1));
        assert_eq!(receiver.recv().await, Some(3));
        second.await.unwrap().unwrap();
        Ok(())
    });
}

#[test]
fn the_end_of_either_side_is_told_to_the_other() {
    run(async {
        let (sender, receiver) = mpsc::channel(1);
        sender.try_send(1).unwrap();
        let mut waits = Box::pin(sender.send(2));
        assert!(!is_ready(&mut waits).await);
        drop(receiver);
        assert_eq!(waits.await, Err(SendError(2)));
        assert_eq!(sender.try_send(3), Err(TrySendError::Closed(3)));
        assert!(sender.is_closed());

        let (sender, mut receiver) = mpsc::channel::<u8>(1);
        let ends = spawn(async move { receiver.recv().await });
        settle().await;
        drop(sender);
        assert_eq!(ends.await.unwrap(), None);
        Ok(())
    });
}

#[test]
fn a_closed_receiver_still_gets_what_has_room() {
    run(async {
        let (sender, mut receiver) = mpsc::channel(2);
        sender.try_send(1).unwrap();
        let room = sender.reserve().await.unwrap();
        receiver.close();
        assert_eq!(sender.send(3).await, Err(SendError(3)));
        assert_eq!(receiver.recv().await, Some(1));
        room.send(2);
        assert_eq!(receiver.recv().await, Some(2));
        assert_eq!(receiver.recv().await, None);
        Ok(())
    });
}

#[test]
fn without_a_bound_sending_never_waits_and_a_drop_may_send() {
    struct SendsAtItsEnd(mpsc::UnboundedSender<Self>, Rc<RefCell<u32>>);

    impl Drop for SendsAtItsEnd {
        fn drop(&mut self) {
            *self.1.borrow_mut() += 1;
            assert!(self.0.is_closed());
        }
    }

    run(async {
        let (sender, mut receiver) = mpsc::unbounded_channel();
        (0..10_000).for_each(|number| sender.send(number).unwrap());
        for number in 0..10_000 {
            assert_eq!(receiver.recv().await, Some(number));
        }
        let drops = Rc::default();
        let (sender, receiver) = mpsc::unbounded_channel();
        for _ in 0..3 {
            sender.send(SendsAtItsEnd(sender.clone(), Rc::clone(&drops))).unwrap();
        }
        drop(receiver);
        assert_eq!(*drops.borrow(), 3);
        Ok(())
    });
}
