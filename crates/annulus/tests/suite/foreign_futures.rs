//! Futures and streams of other crates work in this runtime, even with values that are not `Send`.

use crate::common::run;
use annulus::spawn;
use futures_util::{StreamExt, future, stream};
use std::rc::Rc;
use tokio::sync::{Mutex, Notify, Semaphore, broadcast, mpsc, oneshot, watch};

#[test]
fn tokio_channels_work() {
    run(async {
        let (to, mut from) = mpsc::channel::<Rc<u32>>(2);
        let (answer, answered) = oneshot::channel();
        let (seen, mut sees) = watch::channel(0);
        let (all, mut each) = broadcast::channel(8);
        let task = spawn(async move {
            let mut sum = 0;
            while let Some(number) = from.recv().await {
                sum += *number;
                seen.send(sum).unwrap();
                all.send(sum).unwrap();
            }
            answer.send(sum).unwrap();
        });
        for number in 1..=4 {
            to.send(Rc::new(number)).await.unwrap();
        }
        drop(to);
        assert_eq!(answered.await, Ok(10));
        assert_eq!(*sees.wait_for(|sum| *sum == 10).await.unwrap(), 10);
        assert_eq!((each.recv().await, each.recv().await), (Ok(1), Ok(3)));
        task.await.unwrap();
        Ok(())
    });
}

#[test]
fn tokio_locks_work() {
    run(async {
        let (limit, value) = (Rc::new(Semaphore::new(2)), Rc::new(Mutex::new(0)));
        let done = Rc::new(Notify::new());
        for _ in 0..20 {
            let (limit, value, done) = (limit.clone(), value.clone(), done.clone());
            spawn(async move {
                let _permit = limit.acquire().await.unwrap();
                let mut value = value.lock().await;
                annulus::task::yield_now().await;
                *value += 1;
                if *value == 20 {
                    done.notify_one();
                }
            });
        }
        done.notified().await;
        assert_eq!(*value.lock().await, 20);
        Ok(())
    });
}

#[test]
fn futures_select_join_and_streams_work() {
    run(async {
        let first =
            future::select(Box::pin(annulus::task::yield_now()), future::pending::<()>()).await;
        assert!(matches!(first, future::Either::Left(_)));
        let (one, two) = future::join(async { 1 }, annulus::spawn(async { 2 })).await;
        assert_eq!((one, two.unwrap()), (1, 2));
        let squares = stream::iter(1..=10).map(|number| async move {
            annulus::task::yield_now().await;
            number * number
        });
        assert_eq!(squares.buffer_unordered(3).fold(0, async |sum, n| sum + n).await, 385);
        Ok(())
    });
}
