//! Entry points through which the fuzz targets reach private code. Not part of the public
//! interface.

use crate::datagrams::payload::DatagramPayload;
use crate::exchange::cuts::assert_same_in_pieces;
use crate::exchange::http::{Http, HttpExchange, HttpRequest, Requests};
use crate::exchange::script::{Framing, Script, ScriptExchange, ScriptRequest};
use crate::fault::FirstRefusal;
use crate::mix::{FieldValues, Mix, Template};
use crate::payload::Payload;
use crate::recording::Recording;
use std::rc::Rc;

/// Verifies `bytes` as the echo of a datagram, and as the echo of a stream that arrives in pieces.
/// The first byte selects the client and the size of the pieces.
pub fn echo(bytes: &[u8]) {
    let Some((&first, bytes)) = bytes.split_first() else { return };
    let (client, length) = (usize::from(first >> 4), bytes.len());
    let datagrams = DatagramPayload::new(1, client, length);
    if let Ok(number) = datagrams.read(bytes) {
        let mut sent = Vec::new();
        datagrams.write(number.unwrap_or_default(), &mut sent);
        assert_eq!(sent, bytes, "an echo was accepted that was never sent");
    }
    let mut whole = Payload::new(1, client, length);
    let at_once = whole.check(bytes);
    let mut pieces = Payload::new(1, client, length);
    let size = usize::from(first & 15) + 1;
    let mut checked = 0;
    let found = bytes.chunks(size).find_map(|piece| {
        let wrong = pieces.check(piece).err().map(|at| checked + at);
        checked += piece.len();
        wrong
    });
    assert_eq!(at_once.err(), found, "the result differs in pieces");
}

/// Reads `bytes` as a recording. If they are valid, checks that writing and reading it again gives
/// the same recording.
pub fn recording(bytes: &[u8]) {
    let recording = match Recording::read(bytes) {
        Ok(recording) => recording,
        Err(error) => {
            return assert_eq!(error.to_string().lines().count(), 1, "the error is not one line");
        }
    };
    let mut text = Vec::new();
    recording.write(&mut text).expect("writing to memory failed");
    let again = Recording::read(&text[..]).expect("the written recording cannot be read");
    assert_eq!(again, recording, "reading a written recording gives a different one");
}

/// Number of requests that are outstanding while the fuzzed bytes are received.
const OUTSTANDING_REQUESTS: usize = 8;

/// Parses `bytes` as HTTP/1 replies, at once and in pieces. The first byte selects the method and
/// the size of the pieces.
pub fn http(bytes: &[u8]) {
    let Some((&first, bytes)) = bytes.split_first() else { return };
    let method = if first & 128 == 0 { "GET" } else { "HEAD" };
    let requests =
        Mix::new([(1.0, HttpRequest::new(method, "/"))]).expect("the constant weight is invalid");
    let http = Http { requests, ..Http::new("a:1", "/") };
    let requests = Rc::new(Requests::new(&http, false).expect("the constant request is invalid"));
    let exchange =
        || HttpExchange::new(&requests, FieldValues::new(1, 0, 1), &FirstRefusal::default());
    assert_same_in_pieces(exchange, OUTSTANDING_REQUESTS, bytes, piece(first));
}

/// Parses `bytes` as replies of a script, at once and in pieces. The first byte selects the size of
/// the pieces, the kind of framing, and whether replies are compared. The framing, the expected
/// reply and the replies follow, separated by zeros.
pub fn script(bytes: &[u8]) {
    let Some((&first, bytes)) = bytes.split_first() else { return };
    let mut parts = bytes.splitn(3, |byte| *byte == 0);
    let mut part = || parts.next().unwrap_or_default();
    let (framing, expected, bytes) = (part(), part(), part());
    let field = std::str::from_utf8(framing).ok().and_then(|text| text.parse().ok());
    let framing = match field {
        Some(field) => Framing::LengthField(field),
        None if first & 128 != 0 => Framing::Fixed(framing.len()),
        None => Framing::Delimiter(framing.to_vec()),
    };
    let expected = (first & 64 != 0).then(|| Template::constant(expected));
    let request = ScriptRequest { request: Template::constant("x"), expected, check: None };
    let requests = Mix::new([(1.0, request)]).expect("the constant weight is invalid");
    let script = Script { requests, framing, data: None };
    if let Err(error) = script.validate() {
        return assert!(!error.to_string().is_empty());
    }
    let script = Rc::new(script);
    assert_same_in_pieces(
        || ScriptExchange::new(&script, FieldValues::new(1, 0, 1), &FirstRefusal::default()),
        OUTSTANDING_REQUESTS,
        bytes,
        piece(first),
    );
}

/// Returns the size of the pieces: 1 to 16 bytes.
fn piece(first: u8) -> usize {
    usize::from(first & 15) + 1
}
