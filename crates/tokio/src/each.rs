//! One loop a core.

use crate::run;
use annulus::affinity;
use std::future::Future;
use std::io;
use std::panic::resume_unwind;
use std::thread;
use tokio_util::sync::CancellationToken;

/// Runs a future as [`run`] does on each of `count` threads, each bound to a CPU that this process may use; returns their results in
/// order. `main` gets the number of its thread, from 0 on, and makes its future there, which need not be `Send`.
///
/// ```
/// let squares = annulus_tokio::run_each(2, async |index| index * index)?;
/// assert_eq!(squares, [0, 1]);
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
/// `InvalidInput` for a count of 0 or more than there are CPUs; if a thread cannot be started or its runtimes cannot be built. The futures
/// of the others are then dropped at their next wait.
///
/// # Panics
/// With the panic of a thread; the others end likewise.
pub fn run_each<T, F, Fut>(count: usize, main: F) -> io::Result<Vec<T>>
where
    T: Send,
    F: Fn(usize) -> Fut + Sync,
    Fut: Future<Output = T>,
{
    let cpus = affinity::allowed()?;
    if count == 0 || count > cpus.len() {
        let text = format!("{count} threads: take 1 to {}, a CPU for each", cpus.len());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let (main, stop) = (&main, &CancellationToken::new());
    thread::scope(|scope| {
        let start = |(index, cpu)| {
            let thread = thread::Builder::new().name(format!("annulus-tokio {index}"));
            thread.spawn_scoped(scope, move || {
                let failed = stop.clone().drop_guard();
                let _pinned = affinity::pin(cpu).map_err(io::Error::other)?;
                let output = run(async { stop.run_until_cancelled(main(index)).await })?;
                // This loop has ended without an error: the others go on.
                _ = failed.disarm();
                io::Result::Ok(output)
            })
        };
        let threads: Vec<_> = cpus.iter().copied().take(count).enumerate().map(start).collect();
        if threads.iter().any(Result::is_err) {
            stop.cancel();
        }
        outputs(threads.into_iter().map(|thread| match thread {
            Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            Err(error) => Err(error),
        }))
    })
}

/// The outputs of the threads; the first error if there is one. A thread that was stopped has no output, and then another has failed.
fn outputs<T>(threads: impl Iterator<Item = io::Result<Option<T>>>) -> io::Result<Vec<T>> {
    let joined: Vec<_> = threads.collect();
    let outputs: io::Result<Vec<_>> = joined.into_iter().collect();
    outputs.map(|outputs| outputs.into_iter().flatten().collect())
}
