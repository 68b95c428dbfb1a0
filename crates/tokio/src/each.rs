//! One loop a core.

use crate::run;
use annulus::affinity;
use std::future::Future;
use std::io;
use std::thread;

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
/// `InvalidInput` for a count of 0 or more than there are CPUs; if a thread cannot be started or its runtimes cannot be built. All
/// threads that run have ended then.
///
/// # Panics
/// With the panic of a thread.
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
    let main = &main;
    thread::scope(|scope| {
        let start = |(index, cpu)| {
            let thread = thread::Builder::new().name(format!("annulus-tokio {index}"));
            thread.spawn_scoped(scope, move || {
                let _pinned = affinity::pin(cpu).map_err(io::Error::other)?;
                run(async { main(index).await })
            })
        };
        let threads: Vec<_> = cpus.iter().copied().take(count).enumerate().map(start).collect();
        let joined = threads
            .into_iter()
            .map(|thread| thread?.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        joined.collect()
    })
}
