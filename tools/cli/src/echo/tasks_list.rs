//! SIGUSR1: prints what every task of every worker waits for.

use super::ask::{ANSWER_TIMEOUT, ask_all};
use crate::output::note;
use annulus::Handle;
use annulus::shards::Shard;
use annulus::signal::{Signal, signals};
use std::io;

/// Prints the tasks of all workers to standard error at each SIGUSR1.
pub(super) fn print_at_signal(shard: &Shard) -> io::Result<()> {
    let mut signals = signals(&[Signal::SIGUSR1])?;
    let shard = shard.clone();
    annulus::spawn(async move {
        while signals.recv().await.is_ok() {
            print(shard.handles()).await;
        }
    });
    Ok(())
}

async fn print(handles: &[Handle]) {
    for (worker, answer) in ask_all(handles, Handle::tasks).await.into_iter().enumerate() {
        match answer {
            Ok(Ok(tasks)) => {
                let lines = tasks.iter().map(|task| format!("\n  {task}"));
                let (count, lines) = (tasks.len(), lines.collect::<String>());
                note(format_args!("annulus echo: worker {worker}: {count} tasks{lines}"));
            }
            Ok(Err(error)) => note(format_args!("annulus echo: worker {worker}: {error}")),
            Err(_elapsed) => note(format_args!(
                "annulus echo: worker {worker}: its loop has not turned for {ANSWER_TIMEOUT:?}"
            )),
        }
    }
}
