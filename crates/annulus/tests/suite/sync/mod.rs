//! Channels, locks and notifications between the tasks of one runtime; and those of other crates, which work too.

mod foreign;
mod mpsc;
mod mutex;
mod notify;
mod oneshot;
mod semaphore;

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

/// Polls a future once; whether it is ready.
async fn is_ready<F: Future + Unpin>(future: &mut F) -> bool {
    poll_fn(|cx| Poll::Ready(Pin::new(&mut *future).poll(cx).is_ready())).await
}

/// Lets the other tasks run until they wait for one another.
async fn settle() {
    for _ in 0..8 {
        annulus::yield_now().await;
    }
}
