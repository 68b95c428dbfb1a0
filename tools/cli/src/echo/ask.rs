//! Requests to all workers.

use annulus::Handle;
use annulus::time::{Elapsed, timeout};
use futures_util::future::join_all;
use std::io;
use std::time::Duration;

/// How long the workers may take to answer.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns the answers of all workers, in order. The workers are asked concurrently, so that one
/// whose loop is blocked does not delay the rest.
pub(super) async fn ask_all<T>(
    handles: &[Handle],
    ask: impl AsyncFn(&Handle) -> io::Result<T>,
) -> Vec<Result<io::Result<T>, Elapsed>> {
    join_all(handles.iter().map(|handle| timeout(ANSWER_TIMEOUT, ask(handle)))).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use tokio::sync::Notify;

    /// The first worker answers only once the second has been asked.
    #[test]
    fn ask_all_does_not_wait_for_one_worker_before_asking_the_next() {
        annulus::run(async {
            let (asked, second_is_asked) = (Cell::new(0), Notify::new());
            let ask = async |_: &Handle| {
                asked.set(asked.get() + 1);
                match asked.get() {
                    1 => second_is_asked.notified().await,
                    _ => second_is_asked.notify_one(),
                }
                Ok(())
            };
            let handle = annulus::handle().unwrap();
            let answers = ask_all(&[handle.clone(), handle], ask).await;
            assert!(matches!(answers[..], [Ok(Ok(())), Ok(Ok(()))]), "{answers:?}");
        });
    }
}
