//! The results of received bytes, whatever their pieces: for tests and fuzz targets.

use super::Exchange;
use crate::fault::FaultKind;
use crate::outcome::Outcome;

/// The outcomes of the replies to so many requests, and the kind of the fault, if there is one.
pub(crate) type ExchangeResult = (Vec<Outcome>, Option<FaultKind>);

/// Sends requests, passes the pieces on, and closes.
pub(crate) fn feed<'a>(
    mut exchange: impl Exchange,
    requests: usize,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> ExchangeResult {
    let (mut out, mut outcomes) = (Default::default(), Vec::new());
    (0..requests).for_each(|_| _ = exchange.request(&mut out));
    let mut answered = |answer: super::Answer| outcomes.push(answer.outcome);
    let received =
        pieces.into_iter().try_for_each(|bytes_from| exchange.receive(bytes_from, &mut answered));
    let ended = received.and_then(|()| exchange.on_close(&mut answered));
    (outcomes, ended.err().map(|fault| fault.kind))
}

/// Asserts that pieces of this size, and the bytes at once, give the same.
pub(crate) fn assert_same_in_pieces<X: Exchange>(
    make: impl Fn() -> X,
    requests: usize,
    bytes: &[u8],
    size: usize,
) -> ExchangeResult {
    let at_once = feed(make(), requests, [bytes]);
    let in_pieces = feed(make(), requests, bytes.chunks(size));
    assert_eq!(at_once, in_pieces, "pieces of {size} of \"{}\"", bytes.escape_ascii());
    at_once
}
