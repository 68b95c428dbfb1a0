//! Sending and receiving concurrently in one task.

use crate::fault::Fault;
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

/// Polls both until sending has ended and `enough` holds. A failure of either ends both.
pub(crate) async fn until(
    receiving: impl Future<Output = Result<Infallible, Fault>>,
    sending: impl Future<Output = Result<(), Fault>>,
    enough: impl Fn() -> bool,
) -> Result<(), Fault> {
    let (mut receiving, mut sending) = (pin!(receiving), pin!(sending));
    let mut sent = false;
    poll_fn(|cx| {
        if let Poll::Ready(Err(fault)) = receiving.as_mut().poll(cx) {
            return Poll::Ready(Err(fault));
        }
        if !sent && let Poll::Ready(done) = sending.as_mut().poll(cx) {
            done?;
            sent = true;
        }
        if sent && enough() { Poll::Ready(Ok(())) } else { Poll::Pending }
    })
    .await
}
