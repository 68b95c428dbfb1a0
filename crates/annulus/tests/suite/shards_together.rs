//! Calls that involve all shards: inputs, values sent to all, and a common stop.

use crate::common;

use annulus::net::{TcpListener, TcpStream};
use annulus::shards::{Cause, ShardError, Shards, TryRecvError, channel_to_all};
use annulus::spawn;
use annulus::task::yield_now;
use common::drivers;
use std::cell::Cell;
use std::io;
use std::rc::Rc;
use tokio_util::sync::CancellationToken;

type Outcome<T> = Result<Vec<T>, ShardError<io::Error>>;

/// Runs a body with shards on each driver that works on this machine.
fn on_each_driver(body: impl Fn(fn(usize) -> Shards)) {
    drivers().into_iter().for_each(body);
}

#[test]
fn each_shard_has_its_own_input_without_sync() {
    on_each_driver(|shards| {
        let inputs = (0..3).map(|number| Cell::new(number * 10));
        let done: Outcome<_> = shards(3).run_with(inputs, async |shard, input: Cell<usize>| {
            input.set(input.get() + shard.index());
            Ok(input.get())
        });
        assert_eq!(done.unwrap(), [0, 11, 22]);
    });
}

#[test]
fn inputs_for_more_or_fewer_shards_are_refused() {
    on_each_driver(|shards| {
        for (inputs, said) in [(2, "2 inputs for 3 shards"), (4, "more than 3 inputs for 3 shards")]
        {
            let done: Outcome<()> =
                shards(3).run_with(0..inputs, async |_, _| panic!("the shards have started"));
            let error = io::Error::from(done.unwrap_err());
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            assert!(error.to_string().contains(said), "{error}");
        }
        // An endless source of inputs is refused too.
        let done: Outcome<()> = shards(1).run_with(0.., async |_, _| Ok(()));
        assert!(done.is_err());
    });
}

/// An input that no shard took is dropped once.
#[test]
fn inputs_are_dropped_if_the_shards_cannot_start() {
    let input = std::sync::Arc::new(());
    let refused: Outcome<()> = Shards::new(2)
        .runtime(|_| annulus::Runtime::builder().task_budget(0))
        .run_with([input.clone(), input.clone()], async |_, _| Ok(()));
    assert!(refused.is_err());
    assert_eq!(std::sync::Arc::strong_count(&input), 1);
}

#[test]
fn a_main_may_have_any_output_and_its_panic_contains_the_shard() {
    on_each_driver(|shards| {
        let outputs: Outcome<_> = shards(3).run(async |shard| {
            Ok(match shard.index() {
                1 => Err("its own affair"),
                index => Ok(index),
            })
        });
        assert_eq!(outputs.unwrap(), [Ok(0), Err("its own affair"), Ok(2)]);
        let panics: Outcome<()> = shards(2).run(async |shard| match shard.index() {
            1 => std::panic::resume_unwind(Box::new("only me")),
            _ => std::future::pending().await,
        });
        let error = panics.unwrap_err();
        assert!(matches!(error.cause, Cause::Panicked(_)) && error.shard == 1);
        assert!(io::Error::from(error).to_string().contains("shard 1"));
    });
}

#[test]
fn every_value_reaches_every_shard() {
    on_each_driver(|shards| {
        let (to_all, inboxes) = channel_to_all(3, 4);
        let done: Outcome<_> = shards(3).run_with(inboxes, async |shard, mut inbox| {
            if shard.index() == 2 {
                for number in 0..100 {
                    let to_all = to_all.clone();
                    spawn(async move { to_all.send(number).await });
                }
            }
            let mut got = Vec::new();
            while got.len() < 100 {
                got.extend(inbox.recv().await);
            }
            Ok(got)
        });
        for mut got in done.unwrap() {
            got.sort_unstable();
            assert_eq!(got, (0..100).collect::<Vec<_>>());
        }
    });
}

#[test]
fn values_of_one_task_arrive_in_order_or_are_returned_without_receivers() {
    common::run(async {
        let (to_all, mut inboxes) = channel_to_all(2, 1);
        let sends = spawn(async move {
            for number in 0..10 {
                assert_eq!(to_all.send(number).await, Ok(2));
            }
            to_all
        });
        for number in 0..10 {
            for inbox in &mut inboxes {
                assert_eq!(inbox.recv().await, Some(number));
            }
        }
        let to_all = sends.await?;
        to_all.to(1).unwrap().send(11).await.unwrap();
        assert_eq!(
            (inboxes[1].recv().await, inboxes[0].try_recv()),
            (Some(11), Err(TryRecvError::Empty))
        );
        assert!(to_all.to(2).is_none());
        inboxes.truncate(1);
        assert_eq!(to_all.send(12).await, Ok(1));
        drop(inboxes);
        assert_eq!(to_all.send(13).await.unwrap_err().0, 13);
        Ok(())
    });
}

/// Each shard finishes its existing connections, and cuts none off.
#[test]
fn all_shards_stop_gracefully_when_one_asks() {
    on_each_driver(|shards| {
        let stop = CancellationToken::new();
        let done: Outcome<_> = shards(3).run(async |_shard| {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let address = listener.local_addr()?;
            let served = Rc::new(Cell::new(0));
            let client = spawn(async move {
                let mut stream = TcpStream::connect(address).await?;
                stream.send("served to the end").await?;
                common::receive(&mut stream, 17).await
            });
            while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
                let (mut stream, _) = accepted?;
                stop.cancel();
                let request = common::receive(&mut stream, 17).await?;
                stream.send(request).await?;
                served.set(served.get() + 1);
            }
            drop(listener);
            // A shard that was stopped before it accepted its connection has closed it.
            let answer = client.await?;
            let is_served = answer.is_ok_and(|answer| answer == b"served to the end");
            assert_eq!(is_served, served.get() == 1);
            Ok(served.get())
        });
        assert!(done.unwrap().iter().sum::<i32>() >= 1);
    });
}

#[test]
fn an_outside_token_stops_all_shards() {
    on_each_driver(|shards| {
        let stop = CancellationToken::new();
        let token = stop.clone();
        let (began, has_begun) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            (0..3).for_each(|_| has_begun.recv().unwrap());
            stop.cancel();
        });
        let done: Outcome<()> = shards(3).run_with(vec![began; 3], async |_shard, began| {
            began.send(()).unwrap();
            token.cancelled().await;
            yield_now().await;
            Ok(())
        });
        assert_eq!(done.unwrap().len(), 3);
        thread.join().unwrap();
    });
}
