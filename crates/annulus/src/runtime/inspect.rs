//! Asking a runtime about itself, from any thread.

use super::core::Core;
use super::current;
use super::handle::Handle;
use crate::tasks::consume_budget;
use std::future::poll_fn;
use std::io;
use std::panic::resume_unwind;
use std::task::Poll;

/// Reads something of a runtime, on its thread; `None` after its end.
pub(super) type Question<T> = fn(&Core) -> Option<T>;

impl Handle {
    /// The answer: at once on the runtime's own thread, else by a task there.
    pub(super) async fn ask<T: Send + 'static>(&self, question: Question<T>) -> io::Result<T> {
        consume_budget().await;
        if let Some(answer) = self.answer_here(question) {
            return answer.ok_or_else(ended);
        }
        let answer = self
            .spawn(poll_fn(move |_| Poll::Ready(current::with(|core| question(core)).flatten())))?;
        match answer.await {
            Ok(answer) => answer.ok_or_else(ended),
            // A task that was not aborted and has not panicked ends with its runtime.
            Err(error) => {
                error.try_into_panic().map_or_else(|_| Err(ended()), |panic| resume_unwind(panic))
            }
        }
    }

    fn answer_here<T>(&self, question: Question<T>) -> Option<Option<T>> {
        let is_here = |core: &Core| std::ptr::eq(&*core.remote, self.remote());
        current::with(|core| is_here(core).then(|| question(core))).flatten()
    }
}

fn ended() -> io::Error {
    io::Error::other("the runtime has ended")
}
