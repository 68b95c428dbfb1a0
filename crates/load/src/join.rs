//! Speaking and listening at the same time, in one task.

use crate::fault::Fault;
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

/// Polls both until speaking has ended and `enough` has been heard; either's failure ends it.
pub(crate) async fn until(
    listening: impl Future<Output = Result<Infallible, Fault>>,
    speaking: impl Future<Output = Result<(), Fault>>,
    enough: impl Fn() -> bool,
) -> Result<(), Fault> {
    let (mut listening, mut speaking) = (pin!(listening), pin!(speaking));
    let mut spoken = false;
    poll_fn(|cx| {
        if let Poll::Ready(Err(fault)) = listening.as_mut().poll(cx) {
            return Poll::Ready(Err(fault));
        }
        if !spoken && let Poll::Ready(done) = speaking.as_mut().poll(cx) {
            done?;
            spoken = true;
        }
        if spoken && enough() { Poll::Ready(Ok(())) } else { Poll::Pending }
    })
    .await
}
