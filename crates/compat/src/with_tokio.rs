//! A runtime of tokio beside, for what looks for one.

use std::future::pending;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::thread;
use tokio::runtime::{Builder, EnterGuard, Handle};

/// Has this thread find a runtime of tokio as long as the guard lives: what a handler, a layer or a client makes of tokio then works in a
/// program on annulus alone, and does not panic with "there is no reactor running".
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
/// That runtime is one for the process, and runs on a thread of its own, which starts with the first call and sleeps while nothing of
/// tokio is used. Each use of it wakes that thread, and each event there wakes this one: for a timer a request it does not matter, for
/// the bytes of a busy connection it does. A task given to `tokio::spawn` runs on that thread: it may hold nothing of annulus. That is why
/// axum's `WebSocketUpgrade` does not work with it; that of feature `ws` needs none of this.
/// Timers are those of the real clock, under a simulated kernel too. With several
/// shards, each calls it.
///
/// # Errors
/// If the runtime or its thread cannot be made, as for want of descriptors. The next call tries again.
pub fn with_tokio() -> io::Result<EnterGuard<'static>> {
    static TOKIO: Mutex<Option<&'static Handle>> = Mutex::new(None);
    let mut known = TOKIO.lock().unwrap_or_else(PoisonError::into_inner);
    if known.is_none() {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let serve = move || runtime.block_on(pending::<()>());
        thread::Builder::new().name("tokio".into()).spawn(serve)?;
        // The handle lives as long as the process; there is only one.
        *known = Some(Box::leak(Box::new(handle)));
    }
    Ok(known.expect("it was made").enter())
}
