//! Other threads query the statistics of a runtime.

use crate::common;

use annulus::net::TcpListener;
use annulus::shards::channel;
use annulus::stats::TaskInfo;
use annulus::task::yield_now;
use annulus::time::sleep;
use annulus::{Runtime, spawn};
use common::run;
use std::future::{Future, pending};
use std::sync::mpsc::channel as std_channel;
use std::thread;
use std::time::Duration;

/// Awaits a future on another thread's runtime.
async fn elsewhere<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> T {
    let (sender, mut receiver) = channel(1);
    let thread = thread::spawn(move || {
        let answer = Runtime::new().unwrap().block_on(future);
        sender.try_send(answer).ok().unwrap();
    });
    let answer = receiver.recv().await.unwrap();
    thread.join().unwrap();
    answer
}

#[test]
fn another_thread_gets_the_stats() {
    run(async {
        let _idle = [spawn(pending::<()>()), spawn(pending::<()>())];
        yield_now().await;
        let handle = annulus::handle()?;
        let stats = elsewhere(async move { handle.stats().await }).await?;
        // The asking task counts too.
        assert_eq!(stats.tasks.alive, 3);
        assert!(stats.turns > 0);
        assert_eq!(stats.counters.enters, stats.counters.iter().next().unwrap().value);
        Ok(())
    });
}

#[test]
fn after_the_end_there_are_no_stats() {
    let runtime = Runtime::new().unwrap();
    let handle = runtime.handle();
    // Another thread asks at about the time of the end, so the answer is an error.
    let (sender, receiver) = std_channel();
    let asking = {
        let handle = handle.clone();
        thread::spawn(move || {
            sender.send(()).unwrap();
            Runtime::new().unwrap().block_on(handle.stats())
        })
    };
    receiver.recv().unwrap();
    drop(runtime);
    assert!(asking.join().unwrap().unwrap_err().to_string().contains("has ended"));
    let awaited = Runtime::new().unwrap().block_on(handle.stats());
    assert!(awaited.unwrap_err().to_string().contains("has ended"));
    assert!(annulus::stats().is_none());
}

/// Returns the information about the only task spawned at a line of this file.
fn at(tasks: &[TaskInfo], line: u32) -> &TaskInfo {
    let mut found = tasks.iter().filter(|task| task.spawned_at.line() == line);
    let task = found.next().unwrap_or_else(|| panic!("none at line {line}: {tasks:?}"));
    assert!(found.next().is_none() && task.spawned_at.file().ends_with("stats.rs"));
    task
}

#[test]
fn every_task_is_listed_with_its_place_and_its_wait() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let accepting = line!() + 1;
        let _accepting = spawn(async move { listener.accept().await.map(drop) });
        let sleeping = line!() + 1;
        let _sleeping = spawn(sleep(Duration::from_secs(3600)));
        let idle = line!() + 1;
        let _idle = spawn(pending::<()>());
        yield_now().await;
        let ready = line!() + 1;
        let _ready = spawn(pending::<()>());
        let tasks = annulus::handle()?.tasks().await?;
        assert_eq!(tasks.len(), 4);
        assert!(at(&tasks, accepting).waits_for[0].starts_with("to accept on descriptor "));
        assert!(at(&tasks, sleeping).waits_for[0].starts_with("for a timer in "));
        assert!(at(&tasks, idle).waits_for.is_empty() && !at(&tasks, idle).is_ready);
        assert!(at(&tasks, ready).is_ready);
        assert_eq!((at(&tasks, idle).polls, at(&tasks, ready).polls), (1, 0));
        assert!(tasks.iter().all(|task| task.last_poll.is_some() == (task.polls > 0)), "{tasks:?}");
        let text = at(&tasks, idle).to_string();
        let end = format!("stats.rs:{idle} waits for a task or another thread; polled 1 ×, last ");
        assert!(text.contains(&end), "{text}");
        Ok(())
    });
}

#[test]
fn the_last_poll_of_each_task_is_known() {
    run(async {
        let line = line!() + 1;
        let task = spawn(async {
            yield_now().await;
            yield_now().await;
            sleep(Duration::from_secs(3600)).await;
        });
        let before = annulus::handle()?.tasks().await?;
        assert_eq!(at(&before, line).last_poll, None, "a task that has not run has a last poll");
        sleep(Duration::from_millis(20)).await;
        let after = annulus::handle()?.tasks().await?;
        assert_eq!(at(&after, line).polls, 3);
        let last = at(&after, line).last_poll.expect("a task that has run has no last poll");
        // The clock of a turn is coarse, but never ahead.
        assert!(last > Duration::ZERO, "{last:?}");
        assert!(at(&after, line).to_string().contains("; polled 3 ×, last "));
        drop(task);
        Ok(())
    });
}

#[test]
fn another_thread_lists_the_tasks_of_the_runtime() {
    run(async {
        let line = line!() + 1;
        let _idle = spawn(pending::<()>());
        yield_now().await;
        let handle = annulus::handle()?;
        let tasks = elsewhere(async move { handle.tasks().await }).await?;
        assert_eq!((tasks.len(), at(&tasks, line).is_ready), (1, false));
        Ok(())
    });
}

#[test]
fn a_task_that_lists_its_own_runtime_is_omitted() {
    run(async {
        let asking = spawn(async { annulus::handle()?.tasks().await });
        assert_eq!(asking.await.expect("the task panicked")?, []);
        Ok(())
    });
}

#[test]
fn ten_thousand_tasks_with_as_many_timers_are_listed() {
    run(async {
        let tasks: Vec<_> = (0..10_000).map(|_| spawn(sleep(Duration::from_secs(3600)))).collect();
        yield_now().await;
        while annulus::stats().expect("not in a runtime").tasks.ready > 0 {
            yield_now().await;
        }
        let listed = annulus::handle()?.tasks().await?;
        assert!(listed.len() == 10_000 && listed.iter().all(|task| task.waits_for.len() == 1));
        drop(tasks);
        Ok(())
    });
}
