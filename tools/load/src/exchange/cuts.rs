//! Support for tests and fuzz targets: an exchange must give the same results however its input is
//! split.

use super::Exchange;
use crate::fault::FaultKind;
use crate::outcome::Outcome;

/// The outcomes of the replies, and the kind of the fault, if any.
pub(crate) type ExchangeResult = (Vec<Outcome>, Option<FaultKind>);

/// Sends the requests, feeds the pieces to the exchange, and closes the connection.
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

/// Asserts that pieces of `size` bytes give the same result as all bytes at once.
pub(crate) fn assert_same_in_pieces<X: Exchange>(
    make: impl Fn() -> X,
    requests: usize,
    bytes: &[u8],
    size: usize,
) -> ExchangeResult {
    let at_once = feed(make(), requests, [bytes]);
    let in_pieces = feed(make(), requests, bytes.chunks(size));
    assert_eq!(at_once, in_pieces, "\"{}\" in pieces of {size}", bytes.escape_ascii());
    at_once
}
