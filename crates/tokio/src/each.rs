//! One loop per core.

use crate::run;
use annulus_kernel::affinity;
use std::future::Future;
use std::io;
use std::panic::resume_unwind;
use std::thread;
use tokio_util::sync::CancellationToken;

/// Starts `count` threads, and runs a future on each as [`run`] does. Each thread calls `main` with
/// its number, starting at 0; the future need not be `Send`. Returns the outputs in the order of
/// the numbers. The threads are not pinned to CPUs, for the reason that
/// [`Pinning`](annulus::shards::Pinning) gives.
///
/// ```
/// let squares = annulus_tokio::run_each(2, async |index| index * index)?;
/// assert_eq!(squares, [0, 1]);
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
/// `InvalidInput` if `count` is 0 or greater than the number of CPUs that this process may use.
/// Also fails if a thread cannot be started, its runtimes cannot be built, or annulus cannot
/// continue on it. Then the futures of the other threads are dropped when they next wait.
///
/// # Panics
/// Propagates the panic of a thread, after the other threads have ended as after an error.
pub fn run_each<T, F, Fut>(count: usize, main: F) -> io::Result<Vec<T>>
where
    T: Send,
    F: Fn(usize) -> Fut + Sync,
    Fut: Future<Output = T>,
{
    let cpus = affinity::allowed()?.len();
    if count == 0 || count > cpus {
        let text = format!("{count} threads: use 1 to {cpus}, one for each CPU");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let (main, stop) = (&main, &CancellationToken::new());
    thread::scope(|scope| {
        let start = |index: usize| {
            let thread = thread::Builder::new().name(format!("annulus-tokio {index}"));
            thread.spawn_scoped(scope, move || {
                let failed = stop.clone().drop_guard();
                let output = run(async { stop.run_until_cancelled(main(index)).await })?;
                // This loop ended without an error, so the others continue.
                _ = failed.disarm();
                io::Result::Ok(output)
            })
        };
        let threads: Vec<_> = (0..count).map(start).collect();
        if threads.iter().any(Result::is_err) {
            stop.cancel();
        }
        outputs(threads.into_iter().map(|thread| match thread {
            Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            Err(error) => Err(error),
        }))
    })
}

/// Returns the outputs of the threads, or the first error. A thread has no output only if it was
/// stopped because another has failed.
fn outputs<T>(threads: impl Iterator<Item = io::Result<Option<T>>>) -> io::Result<Vec<T>> {
    let joined: Vec<_> = threads.collect();
    let outputs: io::Result<Vec<_>> = joined.into_iter().collect();
    outputs.map(|outputs| outputs.into_iter().flatten().collect())
}
