//! Questions to all workers.

use annulus::Handle;
use annulus::time::{Elapsed, timeout};
use futures_util::future::join_all;
use std::io;
use std::time::Duration;

/// How long the workers may take to answer.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// The answers of all workers, in their order. All are asked at the same time, so that one whose loop does not turn takes no time from
/// the others.
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

    /// The first answers once the second is asked.
    #[test]
    fn a_worker_that_does_not_answer_does_not_keep_the_others_from_being_asked() {
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
