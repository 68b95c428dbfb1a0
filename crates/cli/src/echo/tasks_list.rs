//! SIGUSR1: what every task of every worker waits for.

use crate::output::note;
use annulus::Handle;
use annulus::shards::Shard;
use annulus::signal::{Signal, signals};
use annulus::time::{self, Instant};
use std::io;
use std::time::Duration;

/// How long the workers may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Prints the tasks of all workers on standard error at each SIGUSR1.
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
    let deadline = Instant::now() + PATIENCE;
    for (worker, handle) in handles.iter().enumerate() {
        match time::timeout_at(deadline, handle.tasks()).await {
            Ok(Ok(tasks)) => {
                let lines = tasks.iter().map(|task| format!("\n  {task}"));
                let (count, lines) = (tasks.len(), lines.collect::<String>());
                note(format_args!("annulus echo: worker {worker}: {count} tasks{lines}"));
            }
            Ok(Err(error)) => note(format_args!("annulus echo: worker {worker}: {error}")),
            Err(_elapsed) => note(format_args!(
                "annulus echo: worker {worker}: its loop has not turned for {PATIENCE:?}"
            )),
        }
    }
}
