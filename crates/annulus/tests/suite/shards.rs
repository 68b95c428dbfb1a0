//! Several runtimes at once: how they start, what moves between them, and how they end.

use crate::common;

use annulus::shards::{Cause, Pinning, Shard, ShardError, Shards, channel, cpus};
use annulus::sim::Sim;
use annulus::task::yield_now;
use annulus::{Handle, counters, spawn};
use common::{drivers, echo, half_pair, pattern, receive};
use std::future::pending;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::panic::resume_unwind;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

/// Runs a check with shards on each driver that works on this machine.
fn on_each_driver(check: impl Fn(fn(usize) -> Shards)) {
    for shards in drivers() {
        check(shards);
    }
}

type Outcome<T> = Result<Vec<T>, ShardError<io::Error>>;

#[test]
fn pinned_shards_run_main_on_their_own_cpu() {
    let before = cpus().unwrap();
    on_each_driver(|shards| {
        let shards = shards(3).pinning(Pinning::Each);
        let done: Outcome<_> = shards.run(async |shard: Shard| {
            assert_eq!(shard.count(), 3);
            assert_eq!(cpus()?, [shard.cpu().expect("the shard is not pinned")]);
            Ok((shard.index(), thread::current().id()))
        });
        let done = done.unwrap();
        assert!(done.iter().map(|(index, _)| *index).eq(0..3));
        assert_eq!(done[0].1, thread::current().id(), "shard 0 does not run on the calling thread");
        assert!(done[1].1 != done[0].1 && done[2].1 != done[0].1 && done[1].1 != done[2].1);
    });
    assert_eq!(cpus().unwrap(), before, "the caller did not get its CPUs back");
}

#[test]
fn by_default_shards_may_run_on_every_cpu() {
    let before = cpus().unwrap();
    let used = annulus::shards(2, async |shard| io::Result::Ok((shard.cpu(), cpus()?)));
    assert_eq!(used.unwrap(), [(None, before.clone()), (None, before)]);
}

#[test]
fn the_first_error_ends_all() {
    on_each_driver(|shards| {
        let error = shards(3).run(async |shard| match shard.index() {
            1 => Err(io::Error::other("had enough")),
            _ => pending::<io::Result<()>>().await,
        });
        let error = error.unwrap_err();
        assert!(matches!((error.shard, &error.cause), (1, Cause::Main(_))), "{error:?}");
        assert_eq!(io::Error::from(error).to_string(), "shard 1: had enough");
    });
}

#[test]
fn a_panic_is_reported_as_such() {
    on_each_driver(|shards| {
        for culprit in [0, 2] {
            let error: Outcome<()> = shards(3).run(async |shard| {
                if shard.index() == culprit {
                    resume_unwind(Box::new("went wrong"));
                }
                pending().await
            });
            let error = error.unwrap_err();
            assert_eq!(error.to_string(), format!("shard {culprit}: panicked: went wrong"));
            assert!(matches!(error.cause, Cause::Panicked(_)));
        }
    });
}

#[test]
fn a_panicking_task_ends_alone() {
    on_each_driver(|shards| {
        let done: Outcome<()> = shards(2).run(async |_| {
            let panic = spawn(async { resume_unwind(Box::new("only me")) }).await;
            assert!(panic.unwrap_err().is_panic());
            Ok(())
        });
        done.unwrap();
    });
}

/// Runs three shards, and builds the culprit's runtime with `make`. Returns the error and how many
/// main functions ran.
fn spoiled(make: fn() -> annulus::Builder, culprit: usize) -> (ShardError<io::Error>, usize) {
    let ran = AtomicUsize::new(0);
    let shards = Shards::new(3)
        .runtime(move |index| if index == culprit { make() } else { annulus::Runtime::builder() });
    let outcome: Outcome<()> = shards.run(async |_| {
        ran.fetch_add(1, Ordering::Relaxed);
        pending().await
    });
    (outcome.unwrap_err(), ran.into_inner())
}

#[test]
fn if_one_shard_cannot_be_set_up_none_starts() {
    for culprit in 0..3 {
        let (error, ran) = spoiled(|| annulus::Runtime::builder().unsent_limit(0), culprit);
        assert_eq!((error.shard, ran), (culprit, 0));
        assert!(matches!(&error.cause, Cause::Runtime(_)), "{error:?}");
        assert!(error.to_string().contains("unsent_limit of 0"), "{error}");

        let (error, ran) = spoiled(|| resume_unwind(Box::new("no settings")), culprit);
        assert_eq!(
            (error.to_string(), ran),
            (format!("shard {culprit}: panicked: no settings"), 0)
        );
    }
}

#[test]
fn impossible_settings_are_refused() {
    let run = |shards: Shards| {
        let outcome: Outcome<()> = shards.run(async |_| Ok(()));
        outcome.unwrap_err().to_string()
    };
    assert_eq!(run(Shards::new(0)), "shard 0: 0 shards would do nothing; use at least 1");
    let many = run(Shards::new(usize::MAX).pinning(Pinning::Each));
    assert!(many.contains("above the maximum of 65536"), "{many}");
    let nowhere = run(Shards::new(2).pinning(Pinning::On(vec![100_000])));
    assert!(nowhere.contains("CPU 100000") && nowhere.contains("may use"), "{nowhere}");
    let simulated = run(Shards::new(1).runtime(|_| {
        let sim = Sim::builder(1).build();
        annulus::Runtime::builder().kernel(sim)
    }));
    assert!(simulated.contains("no other threads"), "{simulated}");
}

#[test]
fn shards_cannot_start_inside_a_runtime() {
    common::run(async {
        let error = annulus::shards(2, async |_| pending::<io::Result<()>>().await).unwrap_err();
        assert!(error.to_string().contains("running on this thread already"), "{error}");
        Ok(())
    });
}

#[test]
fn a_stop_from_outside_ends_all() {
    on_each_driver(|shards| {
        for culprit in 0..2 {
            let (sender, handles) = mpsc::channel::<Handle>();
            let outside = thread::spawn(move || handles.recv().unwrap().stop());
            let error = shards(2).run(async |shard| {
                if shard.index() == culprit {
                    sender.send(shard.handles()[culprit].clone()).unwrap();
                }
                pending::<io::Result<()>>().await
            });
            let error = error.unwrap_err();
            assert_eq!(error.shard, culprit);
            assert_eq!(io::Error::from(error).kind(), io::ErrorKind::Interrupted);
            outside.join().unwrap();
        }
    });
}

#[test]
fn spawn_on_creates_and_runs_the_future_on_its_shard() {
    on_each_driver(|shards| {
        let here = AtomicUsize::new(0);
        let done: Outcome<()> = shards(3).run(async |shard| {
            for to in 0..3 {
                let home = shard.spawn_on(to, || async {
                    // Neither the `Rc` nor the future is `Send`.
                    let kept = Rc::new(thread::current().id());
                    yield_now().await;
                    *kept
                })?;
                let there = home.await.unwrap();
                assert_eq!(there == thread::current().id(), to == shard.index());
            }
            let panic = shard.spawn_on(0, || async { resume_unwind(Box::new("away")) })?;
            let panic = panic.await.unwrap_err();
            assert_eq!(panic.into_panic().downcast_ref(), Some(&"away"));
            let missing = shard.spawn_on(3, async || ()).unwrap_err();
            assert_eq!(
                missing.to_string(),
                "shard 3 is out of range: there are 3 shards, starting at 0"
            );
            // Every shard stays until no other shard spawns on it any longer.
            gather(&shard, &here).await
        });
        done.unwrap();
    });
}

/// Waits until every shard has reached this point.
async fn gather(shard: &Shard, here: &AtomicUsize) -> io::Result<()> {
    here.fetch_add(1, Ordering::AcqRel);
    while here.load(Ordering::Acquire) < shard.count() {
        yield_now().await;
    }
    Ok(())
}

/// When dropped, sends the ID of the thread that drops it.
struct DropNote(mpsc::Sender<thread::ThreadId>);

impl Drop for DropNote {
    fn drop(&mut self) {
        self.0.send(thread::current().id()).unwrap();
    }
}

#[test]
fn an_aborted_task_is_dropped_on_its_own_thread() {
    on_each_driver(|shards| {
        let done: Outcome<()> = shards(2).run(async |shard| {
            if shard.index() == 1 {
                return pending().await;
            }
            let (sender, dropped) = mpsc::channel();
            let (started, mut has_started) = channel(1);
            let task = shard.spawn_on(1, move || async move {
                let _note = DropNote(sender);
                started.send(thread::current().id()).await.unwrap();
                pending::<()>().await
            })?;
            let there = has_started.recv().await.unwrap();
            task.abort();
            assert_eq!(dropped.recv().unwrap(), there);
            Err(io::Error::other("enough"))
        });
        assert_eq!(done.unwrap_err().to_string(), "shard 0: enough");
    });
}

#[test]
fn other_threads_can_spawn_until_the_end() {
    on_each_driver(|shards| {
        let (sender, handles) = mpsc::channel::<Handle>();
        let outside = thread::spawn(move || {
            let handle = handles.recv().unwrap();
            let (sender, answer) = mpsc::channel();
            let task = handle.spawn_with(move || async move { sender.send(*Rc::new(49)) });
            assert_eq!(answer.recv().unwrap(), 49);
            drop(task.unwrap());
            handle.stop();
            handle
        });
        let error = shards(2).run(async |shard| {
            if shard.index() == 1 {
                sender.send(shard.handles()[1].clone()).unwrap();
            }
            pending::<io::Result<()>>().await
        });
        error.unwrap_err();
        let handle = outside.join().unwrap();
        assert!(handle.spawn_with(|| async {}).is_err(), "a task was spawned after the end");
    });
}

#[test]
fn a_connection_moves_between_shards_while_its_peer_sends() {
    on_each_driver(|shards| {
        let done: Outcome<()> = shards(2).run(async |shard| {
            if shard.index() == 1 {
                return pending().await;
            }
            let sent = pattern(4 << 20);
            let (stream, mut peer) = half_pair().await?;
            let (expected, mut back) = (sent.clone(), peer.try_clone()?);
            let writer = thread::spawn(move || {
                peer.write_all(&sent).unwrap();
                peer.shutdown(Shutdown::Write).unwrap();
            });
            let reader = thread::spawn(move || {
                let mut all = Vec::new();
                back.read_to_end(&mut all).unwrap();
                all
            });
            travel(shard, stream, 40).await?;
            writer.join().unwrap();
            assert!(reader.join().unwrap() == expected, "the bytes did not come back in order");
            Err(io::Error::other("enough"))
        });
        assert_eq!(done.unwrap_err().to_string(), "shard 0: enough");
    });
}

/// Echoes some bytes and continues on the other shard. After the last hop, echoes the rest.
fn travel(
    shard: Shard,
    mut stream: annulus::net::TcpStream,
    hops: usize,
) -> std::pin::Pin<Box<dyn Future<Output = io::Result<()>>>> {
    Box::pin(async move {
        if hops == 0 {
            return echo(stream).await;
        }
        for lease in [stream.recv().await?, stream.recv().await?].into_iter().flatten() {
            stream.send(lease).await?;
        }
        let next = hops % shard.count();
        let onward = shard.clone();
        // The other shard serves the rest, and this task waits for it.
        let moved = shard.move_stream(stream, next, move |stream| travel(onward, stream, hops - 1));
        moved.await?.await.expect("the moved task panicked or was aborted")
    })
}

/// Returns the state of a thread as the system shows it: `S` if it sleeps.
fn state(thread: rustix::process::Pid) -> char {
    let path = format!("/proc/self/task/{}/stat", thread.as_raw_nonzero());
    let stat = std::fs::read_to_string(path).unwrap();
    stat.rsplit(") ").next().and_then(|rest| rest.chars().next()).unwrap()
}

#[test]
fn waking_a_sleeping_shard_takes_one_system_call_per_value() {
    const ROUNDS: usize = 50;
    on_each_driver(|shards| {
        let (sender, receiver) = channel(4);
        let (announce, thread) = mpsc::channel();
        let seen = Arc::new(AtomicUsize::new(0));
        let outside = thread::spawn({
            let seen = seen.clone();
            move || {
                let thread = thread.recv().unwrap();
                for round in 0..ROUNDS {
                    // The loop sleeps only in the kernel's wait, where it counts as parked.
                    wait_until(|| seen.load(Ordering::Acquire) == round && state(thread) == 'S');
                    sender.try_send(round).unwrap();
                }
            }
        });
        let receiver = Mutex::new(Some(receiver));
        let done: Outcome<_> = shards(1).run(async |_| {
            let mut receiver = receiver.lock().unwrap().take().unwrap();
            let before = counters().unwrap();
            announce.send(rustix::thread::gettid()).unwrap();
            while receiver.recv().await.is_some() {
                seen.fetch_add(1, Ordering::Release);
            }
            let after = counters().unwrap();
            Ok((after.remote_wakes - before.remote_wakes, after.wakeups - before.wakeups))
        });
        outside.join().unwrap();
        let (wakes, calls) = done.unwrap()[0];
        // The last wake is for the end of the channel. The loop may not have gone back to sleep by
        // then.
        assert!((ROUNDS as u64..=ROUNDS as u64 + 1).contains(&wakes), "{wakes} wakes");
        assert!((ROUNDS as u64..=ROUNDS as u64 + 1).contains(&calls), "{calls} system calls");
    });
}

fn wait_until(condition: impl Fn() -> bool) {
    while !condition() {
        thread::yield_now();
    }
}

#[test]
fn a_shard_that_is_awake_is_woken_without_a_system_call() {
    const VALUES: usize = 1000;
    on_each_driver(|shards| {
        let (sender, receiver) = channel(VALUES);
        let (over, receiver) = (AtomicBool::new(false), Mutex::new(Some(receiver)));
        let done: Outcome<()> = shards(2).run(async |shard| {
            if shard.index() == 0 {
                for value in 0..VALUES {
                    sender.send(value).await.unwrap();
                }
                while !over.load(Ordering::Acquire) {
                    yield_now().await;
                }
                return Ok(());
            }
            let mut receiver = receiver.lock().unwrap().take().unwrap();
            let before = counters().unwrap().wakeups;
            // Another task keeps the loop awake while this one waits for each value.
            let busy = spawn(async {
                loop {
                    yield_now().await;
                }
            });
            for expected in 0..VALUES {
                assert_eq!(receiver.recv().await, Some(expected));
            }
            assert_eq!(counters().unwrap().wakeups - before, 0);
            busy.abort();
            over.store(true, Ordering::Release);
            Ok(())
        });
        done.unwrap();
    });
}

/// Handling a request involves no other shard.
#[test]
fn requests_stay_on_their_shard() {
    on_each_driver(|shards| {
        let (ready, over) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let done: Outcome<()> = shards(2).run(async |shard| {
            let (mut client, server) = common::pair().await?;
            spawn(echo(server));
            gather(&shard, &ready).await?;
            let before = counters().unwrap();
            for _ in 0..500 {
                client.send("ping").await?;
                assert_eq!(receive(&mut client, 4).await?, b"ping");
            }
            let after = counters().unwrap();
            assert_eq!(after.remote_wakes - before.remote_wakes, 0);
            assert_eq!(after.wakeups - before.wakeups, 0);
            gather(&shard, &over).await
        });
        done.unwrap();
    });
}
