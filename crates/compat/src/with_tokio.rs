//! A tokio runtime on a separate thread, for code that requires one.

use std::future::pending;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::thread;
use tokio::runtime::{Builder, EnterGuard, Handle};

/// Makes a tokio runtime available on this thread while the guard lives. Handlers, layers and
/// clients that use tokio then work in a program on annulus alone, instead of panicking with "there
/// is no reactor running".
///
/// ```
/// use annulus_compat::with_tokio;
/// use std::time::Duration;
///
/// annulus::run(async {
///     let _tokio = with_tokio()?;
///     tokio::time::sleep(Duration::from_millis(1)).await;
///     assert_eq!(tokio::spawn(async { 6 * 7 }).await?, 42);
///     Ok::<_, std::io::Error>(())
/// })
/// # .unwrap();
/// ```
///
/// The process has one such runtime. It runs on its own thread, which the first call starts and
/// which sleeps while tokio is not used. Each use wakes the tokio thread, and each tokio event
/// wakes the annulus thread. That does not matter for one timer per request, but it does for the
/// bytes of a busy connection. Tasks passed to `tokio::spawn` run on the tokio thread and must not
/// hold annulus values. So axum's `WebSocketUpgrade` does not work with this runtime; use the
/// `WebSocketUpgrade` of feature `ws`, which needs no tokio runtime. Timers use the real clock,
/// even under a simulated kernel. With several shards, call this function on each.
///
/// # Errors
/// Fails if the runtime or its thread cannot be created, for example because descriptors have run
/// out. A later call tries again.
pub fn with_tokio() -> io::Result<EnterGuard<'static>> {
    static TOKIO_HANDLE: Mutex<Option<&'static Handle>> = Mutex::new(None);
    let mut known = TOKIO_HANDLE.lock().unwrap_or_else(PoisonError::into_inner);
    if known.is_none() {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let serve = move || runtime.block_on(pending::<()>());
        thread::Builder::new().name("tokio".into()).spawn(serve)?;
        // Leaked because the guard needs a `'static` handle. This happens at most once per process.
        *known = Some(Box::leak(Box::new(handle)));
    }
    Ok(known.expect("the handle was not created").enter())
}
