//! Requests that the user wrote, and replies whose end is found by a delimiter, a length or a field with a length.

mod framing;
mod replies;

pub use framing::{Framing, LengthField, MAX_LENGTH_FIELD_OFFSET};

use super::{Answer, Exchange};
use crate::fault::Fault;
use crate::fault::FirstRefusal;
use crate::invalid::{InvalidValue, invalid};
use crate::mix::{FieldValues, Mix, Template};
use crate::outcome::Outcome;
use replies::ReplyParser;
use std::collections::VecDeque;
use std::rc::Rc;

/// Requests of any simple protocol: each is answered by one reply, in order.
///
/// ```
/// use annulus_load::{Framing, Script, script_template};
///
/// let request = script_template(r"PING {n}\r\n").unwrap();
/// let script = Script::new(request, Framing::Delimiter(b"\n".to_vec()));
/// assert_eq!(script.validate(), Ok(()));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Script {
    /// The requests, of which each client draws the next one.
    pub requests: Mix<ScriptRequest>,
    /// Where a reply ends.
    pub framing: Framing,
}

/// One kind of request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptRequest {
    /// The bytes that are sent: at least one.
    pub request: Template,
    /// The whole reply, with its delimiter or its length field, if it is known; others are counted as errors. Its fields get the values
    /// of those of the request, in their order.
    pub expected: Option<Template>,
}

impl Script {
    /// One kind of request, and replies that are not compared.
    pub fn new(request: Template, framing: Framing) -> Script {
        let request = ScriptRequest { request, expected: None };
        let requests = Mix::new([(1.0, request)]).expect("a weight that is a constant");
        Script { requests, framing }
    }

    /// Checks that requests and replies have bytes, and that what is expected is one reply.
    ///
    /// # Errors
    /// Names what is wrong.
    pub fn validate(&self) -> Result<(), InvalidValue> {
        self.framing.validate()?;
        self.requests.entries().iter().try_for_each(|request| request.validate(&self.framing))
    }
}

impl ScriptRequest {
    fn validate(&self, framing: &Framing) -> Result<(), InvalidValue> {
        let mut out = Vec::new();
        let expected = self.write(&mut FieldValues::new(0, 0, 1), &mut out);
        match expected {
            _ if out.is_empty() => Err(invalid("a request without a byte: give it some")),
            Some(expected) if !replies::is_exactly_one_reply(framing, &expected) => {
                Err(invalid(format!(
                    "the expected reply \"{}\" is not exactly one reply: give it whole, with its delimiter or its length",
                    expected.escape_ascii()
                )))
            }
            _ => Ok(()),
        }
    }

    /// Appends a request; returns the reply that is expected.
    fn write(&self, values: &mut FieldValues, out: &mut Vec<u8>) -> Option<Box<[u8]>> {
        // Random fields are drawn once for both.
        let again = self.expected.is_some().then(|| values.clone());
        self.request.write(values, out);
        values.next_request();
        let (expected, mut values) = self.expected.as_ref().zip(again)?;
        let mut bytes = Vec::new();
        expected.write(&mut values, &mut bytes);
        Some(bytes.into())
    }
}

/// A template of a text with escapes: `\n`, `\r`, `\t`, `\0`, `\\` and `\xHH`.
///
/// # Errors
/// Names an unknown escape, or what is wrong with a field.
pub fn script_template(text: &str) -> Result<Template, InvalidValue> {
    Template::parse_with(text, script_bytes)
}

/// The bytes of a text with escapes: `\n`, `\r`, `\t`, `\0`, `\\` and `\xHH`.
///
/// # Errors
/// Names an unknown escape.
pub fn script_bytes(text: &str) -> Result<Vec<u8>, InvalidValue> {
    let mut rest = text.bytes();
    let mut bytes = Vec::new();
    while let Some(byte) = rest.next() {
        let wrong = |escape: Option<char>| match escape {
            Some(escape) => invalid(format!(
                "\\{escape} is no escape in '{text}': use \\n \\r \\t \\0 \\\\ or \\x00 to \\xff"
            )),
            None => invalid(format!("'{text}' ends with a backslash: write \\\\ for one")),
        };
        bytes.push(match byte {
            b'\\' => escaped(&mut rest).map_err(wrong)?,
            byte => byte,
        });
    }
    Ok(bytes)
}

/// The byte behind a backslash, taken from `rest`.
///
/// # Errors
/// The character that stands there in place of an escape; `None` at the end.
fn escaped(rest: &mut impl Iterator<Item = u8>) -> Result<u8, Option<char>> {
    let byte = rest.next().ok_or(None)?;
    Ok(match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'0' => 0,
        b'\\' | b'"' | b'\'' => byte,
        b'x' => {
            let mut digit = || rest.next().and_then(|byte| char::from(byte).to_digit(16));
            let (high, low) = digit().zip(digit()).ok_or(Some('x'))?;
            (high * 16 + low) as u8
        }
        other => return Err(Some(other.into())),
    })
}

/// The requests and replies of one client.
pub(crate) struct ScriptExchange {
    script: Rc<Script>,
    values: FieldValues,
    /// The replies that are expected, one for each request without a reply.
    expected: VecDeque<Option<Box<[u8]>>>,
    replies: ReplyParser,
    refusal: FirstRefusal,
}

impl ScriptExchange {
    pub(crate) fn new(
        script: &Rc<Script>,
        values: FieldValues,
        refusal: &FirstRefusal,
    ) -> ScriptExchange {
        let (script, refusal, replies) =
            (Rc::clone(script), refusal.clone(), ReplyParser::default());
        ScriptExchange { script, values, expected: VecDeque::new(), replies, refusal }
    }
}

impl Exchange for ScriptExchange {
    type Out = Vec<u8>;

    fn request(&mut self, out: &mut Vec<u8>) -> usize {
        let index = self.values.draw(&self.script.requests);
        let request = &self.script.requests.entries()[index];
        self.expected.push_back(request.write(&mut self.values, out));
        index
    }

    fn take(&mut self, input: &[u8], answered: &mut impl FnMut(Answer)) -> Result<usize, Fault> {
        let Some(expected) = self.expected.front() else {
            return Err(Fault::too_many_bytes(input.len()));
        };
        let (taken, is_expected) =
            self.replies.take(input, &self.script.framing, expected.as_deref(), &self.refusal)?;
        if let Some(is_expected) = is_expected {
            self.expected.pop_front();
            let outcome = if is_expected { Outcome::Ok } else { Outcome::ErrorReply };
            answered(Answer::new(outcome));
        }
        Ok(taken)
    }

    fn on_close(&mut self, _answered: &mut impl FnMut(Answer)) -> Result<(), Fault> {
        self.replies.on_close()
    }

    fn on_reconnect(&mut self) {
        self.replies = ReplyParser::default();
        self.expected.clear();
    }
}

#[cfg(test)]
mod tests;
