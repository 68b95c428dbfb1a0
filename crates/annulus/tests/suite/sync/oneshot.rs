use super::{is_ready, settle};
use crate::common::run;
use annulus::spawn;
use annulus::sync::oneshot::{self, TryRecvError};

#[test]
fn the_value_comes_once() {
    run(async {
        let (sender, mut receiver) = oneshot::channel();
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
        assert!(!is_ready(&mut receiver).await);
        let sends = spawn(async move { sender.send("value") });
        assert_eq!((&mut receiver).await, Ok("value"));
        assert_eq!(sends.await.unwrap(), Ok(()));
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Closed));
        assert!(receiver.await.is_err());
        Ok(())
    });
}

#[test]
fn the_end_of_either_side_is_told_to_the_other() {
    run(async {
        let (sender, receiver) = oneshot::channel::<u8>();
        let waits = spawn(receiver);
        settle().await;
        drop(sender);
        assert_eq!(waits.await.unwrap().unwrap_err().to_string(), "the channel's sender is gone");

        let (mut sender, receiver) = oneshot::channel();
        assert!(!is_ready(&mut Box::pin(sender.closed())).await);
        drop(receiver);
        sender.closed().await;
        assert!(sender.is_closed());
        assert_eq!(sender.send(7), Err(7));

        let (sender, mut receiver) = oneshot::channel();
        sender.send(8).unwrap();
        receiver.close();
        assert_eq!(receiver.await, Ok(8), "what was sent before is still there");

        let (_sender, mut receiver) = oneshot::channel::<u8>();
        receiver.close();
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Closed));
        assert!(receiver.await.is_err(), "nothing can come any more");
        Ok(())
    });
}
