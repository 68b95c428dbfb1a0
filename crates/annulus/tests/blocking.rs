//! Blocking calls, which run on separate threads.

mod common;

use annulus::task::{JoinSet, spawn_blocking, yield_now};
use annulus::time::timeout;
use annulus::{DriverChoice, Runtime, sim, spawn};
use annulus_skip::skip;
use common::denied::deny;
use common::rerun::{self, rerun};
use common::{run, run_on};
use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

/// Returns a call that ends when the sender is dropped.
fn until(left: Receiver<()>) -> impl FnOnce() + Send + 'static {
    move || _ = left.recv()
}

/// Runs a body with a builder for each driver that works on this machine.
fn on_each_driver(body: impl Fn(annulus::Builder)) {
    for driver in [DriverChoice::Uring, DriverChoice::Epoll] {
        if Runtime::builder().driver(driver).build().is_ok() {
            body(Runtime::builder().driver(driver));
        } else {
            skip!("no {driver} here");
        }
    }
}

/// Returns the number of threads of this process that belong to a pool.
fn pool_threads() -> usize {
    let names = std::fs::read_dir("/proc/self/task")
        .unwrap()
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.starts_with("annulus-blockin")).count()
}

#[test]
fn the_loop_runs_while_a_call_blocks_and_then_receives_its_result() {
    on_each_driver(|builder| {
        run_on(builder, async {
            let (leave, left) = channel();
            let turns = Rc::new(Cell::new(0));
            let counted = turns.clone();
            spawn(async move {
                for _ in 0..100 {
                    counted.set(counted.get() + 1);
                    yield_now().await;
                }
                leave.send(thread::current().id()).unwrap();
            });
            let call = spawn_blocking(move || (left.recv().unwrap(), thread::current().id()));
            let (here, there) = call.await?;
            assert_eq!((turns.get(), here), (100, thread::current().id()));
            assert_ne!(here, there);
            Ok(())
        });
    });
}

#[test]
fn calls_run_at_once_up_to_the_limit_and_the_rest_in_order() {
    on_each_driver(|builder| {
        run_on(builder.blocking_threads(2), async {
            let (leave, left): (Vec<Sender<()>>, Vec<_>) = (0..2).map(|_| channel()).unzip();
            let began = Arc::new(Barrier::new(3));
            for left in left {
                let began = began.clone();
                spawn_blocking(move || {
                    began.wait();
                    until(left)();
                });
            }
            // Both calls run. Otherwise, this would wait forever.
            began.wait();
            let (note, notes) = channel();
            let mut set = JoinSet::new();
            for number in 0..50 {
                let note = note.clone();
                set.spawn_blocking(move || note.send(number).unwrap());
            }
            assert!(notes.try_recv().is_err(), "a call did not wait for a thread");
            // Only one thread continues, so that calls run in the order in which they were made.
            let mut leave = leave.into_iter();
            drop(leave.next());
            set.join_all().await;
            assert_eq!(notes.try_iter().collect::<Vec<_>>(), (0..50).collect::<Vec<_>>());
            Ok(())
        });
    });
}

#[test]
fn ten_thousand_calls_each_have_their_own_result() {
    run_on(Runtime::builder().blocking_threads(4), async {
        let mut set = JoinSet::new();
        (0..10_000_u64).for_each(|number| drop(set.spawn_blocking(move || number * number)));
        let mut squares = set.join_all().await;
        squares.sort_unstable();
        assert!(squares.into_iter().eq((0..10_000).map(|number| number * number)));
        Ok(())
    });
}

#[test]
fn a_panic_is_reported_by_the_handle() {
    run(async {
        let panics = spawn_blocking(|| std::panic::resume_unwind(Box::new("only me")));
        let error = panics.await.map(|()| "no panic").unwrap_err();
        assert_eq!(error.into_panic().downcast_ref(), Some(&"only me"));
        // The thread and the pool still work.
        assert_eq!(spawn_blocking(|| 1).await?, 1);
        Ok(())
    });
}

#[test]
fn a_call_that_is_aborted_before_it_has_begun_is_not_made() {
    run_on(Runtime::builder().blocking_threads(1), async {
        let (leave, left) = channel();
        let busy = spawn_blocking(until(left));
        let made = Arc::new(AtomicBool::new(false));
        let make = made.clone();
        let waits = spawn_blocking(move || make.store(true, Ordering::Relaxed));
        waits.abort();
        assert!(waits.await.unwrap_err().is_cancelled());
        assert_eq!(Arc::strong_count(&made), 1, "the aborted call was not dropped");
        // A call that has begun is completed, although its handle is dropped.
        drop(busy);
        drop(leave);
        spawn_blocking(|| ()).await?;
        assert!(!made.load(Ordering::Relaxed));
        Ok(())
    });
}

#[test]
fn no_thread_runs_before_the_first_call_or_after_the_end() {
    // The test runs in a separate process, because other tests have pools too.
    rerun::assert_passes(&mut rerun!(threads_of_the_pool));
}

#[test]
#[ignore = "run by its parent: counts the threads of its process"]
fn threads_of_the_pool() {
    let mut runtime = Runtime::builder().blocking_keep_alive(Duration::MAX).build().unwrap();
    runtime.block_on(async { yield_now().await });
    assert_eq!(pool_threads(), 0);
    runtime.block_on(async { spawn_blocking(|| ()).await }).unwrap();
    assert_eq!(pool_threads(), 1);
    drop(runtime);
    // The runtime waited until the thread had nothing left to do, but the system may remove it
    // later.
    while pool_threads() > 0 {
        thread::yield_now();
    }
}

#[test]
fn shutdown_waits_for_calls_that_have_begun_and_drops_the_rest() {
    let ended = Arc::new(AtomicBool::new(false));
    let mut runtime = Runtime::builder().blocking_threads(1).build().unwrap();
    let ((begun, has_begun), (alive, is_dropped)) = (channel(), channel::<()>());
    let end = ended.clone();
    runtime.block_on(async {
        spawn_blocking(move || {
            begun.send(()).unwrap();
            // Ends once the runtime has dropped the other call.
            until(is_dropped)();
            end.store(true, Ordering::Relaxed);
        });
        spawn_blocking(move || alive.send(()).unwrap());
    });
    has_begun.recv().unwrap();
    drop(runtime);
    assert!(ended.load(Ordering::Relaxed));
}

#[test]
fn shutdown_abandons_a_call_that_does_not_end_in_time() {
    let mut runtime =
        Runtime::builder().shutdown_timeout(Duration::from_millis(5)).build().unwrap();
    let ((leave, left), (note, notes)) = (channel::<()>(), channel());
    runtime.block_on(async {
        spawn_blocking(move || {
            note.send("it has begun").unwrap();
            until(left)();
            note.send("it went on").unwrap();
        });
    });
    assert_eq!(notes.recv(), Ok("it has begun"));
    drop(runtime);
    assert!(notes.try_recv().is_err());
    drop(leave);
    assert_eq!(notes.recv(), Ok("it went on"));
}

#[test]
fn the_handle_reports_that_no_thread_can_be_started() {
    let thread = thread::spawn(|| {
        let mut runtime = Runtime::new().unwrap();
        [libc::SYS_clone, libc::SYS_clone3].into_iter().for_each(|call| deny(call, libc::EAGAIN));
        let error = runtime.block_on(spawn_and_wait()).unwrap_err();
        assert!(error.is_panic(), "{error}");
        let text = error.to_string();
        assert!(text.contains("thread") && text.contains("ulimit -u"), "{text}");
    });
    thread.join().unwrap();
}

#[test]
fn existing_threads_make_the_calls_if_no_further_thread_can_be_started() {
    let thread = thread::spawn(|| {
        let mut runtime = Runtime::builder().blocking_threads(4).build().unwrap();
        runtime.block_on(async {
            let (leave, left) = channel();
            let ((note, notes), busy) = (channel(), until(left));
            let busy = spawn_blocking(move || {
                note.send(()).unwrap();
                busy();
            });
            notes.recv().unwrap();
            [libc::SYS_clone, libc::SYS_clone3]
                .into_iter()
                .for_each(|call| deny(call, libc::EAGAIN));
            let waits = spawn_blocking(|| 1);
            drop(leave);
            busy.await.unwrap();
            assert_eq!(waits.await.unwrap(), 1);
            assert_eq!(spawn_blocking(|| 3).await.unwrap(), 3);
        });
    });
    thread.join().unwrap();
}

#[test]
fn the_panic_outside_a_runtime_names_the_function() {
    let text = |call: fn()| {
        let panic = std::panic::catch_unwind(call).unwrap_err();
        panic.downcast_ref::<String>().unwrap().clone()
    };
    let with = text(|| drop(spawn_blocking(|| ())));
    let start = "annulus::task::spawn_blocking: no runtime is running on this thread";
    assert!(with.starts_with(start), "{with}");
}

async fn spawn_and_wait() -> Result<(), annulus::task::JoinError> {
    spawn_blocking(|| ()).await
}

#[test]
fn a_pool_without_threads_is_refused() {
    let error = Runtime::builder().blocking_threads(0).build().unwrap_err();
    assert!(error.to_string().contains("blocking_threads of 0"), "{error}");
}

/// A simulated kernel has no other threads, so the call is made on the loop.
#[test]
fn under_the_simulator_calls_are_made_on_the_loop() {
    sim::run(3, async {
        let here = thread::current().id();
        assert_eq!(spawn_blocking(|| thread::current().id()).await?, here);
        let panics = spawn_blocking(|| std::panic::resume_unwind(Box::new(1_u8)));
        assert!(panics.await.map(|()| "no panic").unwrap_err().is_panic());
        io::Result::Ok(())
    })
    .unwrap();
}

/// Dropping the wait does not affect the call, and a timeout works with it.
#[test]
fn a_call_can_be_waited_for_with_a_timeout() {
    run(async {
        let (leave, left) = channel();
        let mut call = spawn_blocking(until(left));
        assert!(timeout(Duration::from_millis(1), &mut call).await.is_err());
        drop(leave);
        call.await?;
        Ok(())
    });
}
