//! Requests written by the user, and replies whose end is found by a delimiter, a fixed length or a
//! length field.

mod framing;
mod replies;

pub use framing::{Framing, LengthField, MAX_LENGTH_FIELD_OFFSET};

use super::{Answer, Exchange};
use crate::expected::{BodyCheck, Expected};
use crate::fault::Fault;
use crate::fault::FirstRefusal;
use crate::invalid::{InvalidValue, invalid};
use crate::mix::{DataRows, FieldValues, Mix, Template};
use crate::outcome::Outcome;
use replies::ReplyParser;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

/// Requests of any simple protocol in which each request gets one reply, in order.
///
/// ```
/// use annulus_load::{Framing, Script, script_template};
///
/// let request = script_template(r"PING {n}\r\n", None).unwrap();
/// let script = Script::new(request, Framing::Delimiter(b"\n".to_vec()));
/// assert_eq!(script.validate(), Ok(()));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Script {
    /// The requests. Each client draws its next one at random, or sends them in order as a session.
    pub requests: Mix<ScriptRequest>,
    /// How the end of a reply is found.
    pub framing: Framing,
    /// Rows of values. A field with the name of a column is replaced with the column's value.
    pub data: Option<Arc<DataRows>>,
}

/// One kind of request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptRequest {
    /// The bytes to send: at least one.
    pub request: Template,
    /// The whole expected reply, including its delimiter or length field, if it is known. Other
    /// replies count as errors. Its fields get the same values as the fields of the request, in
    /// order.
    pub expected: Option<Template>,
    /// A check of the whole reply in addition to `expected`. Replies that fail it count as errors.
    pub check: Option<Expected>,
}

impl Script {
    /// Creates a script with one kind of request whose replies are not compared.
    pub fn new(request: Template, framing: Framing) -> Script {
        let request = ScriptRequest { request, expected: None, check: None };
        let requests = Mix::new([(1.0, request)]).expect("the constant weight is invalid");
        Script { requests, framing, data: None }
    }

    /// Checks that the framing is valid, that no request is empty, and that each expected reply is
    /// exactly one reply.
    ///
    /// # Errors
    /// Fails for the first problem.
    pub fn validate(&self) -> Result<(), InvalidValue> {
        self.framing.validate()?;
        let mut requests = self.requests.entries().iter();
        requests.try_for_each(|request| {
            FieldValues::check_each_row(self.data.as_ref(), request.uses_data(), |values| {
                request.validate(&self.framing, values)
            })
        })
    }
}

impl ScriptRequest {
    fn uses_data(&self) -> bool {
        self.request.uses_data() || self.expected.as_ref().is_some_and(Template::uses_data)
    }

    fn validate(&self, framing: &Framing, values: &mut FieldValues) -> Result<(), InvalidValue> {
        let mut out = Vec::new();
        let expected = self.write(values, &mut out);
        match expected {
            _ if out.is_empty() => Err(invalid("a request is empty: give it at least one byte")),
            Some(expected) if !replies::is_exactly_one_reply(framing, &expected) => {
                Err(invalid(format!(
                    "the expected reply \"{}\" is not exactly one reply: write the whole reply, \
                     with its delimiter or length",
                    expected.escape_ascii()
                )))
            }
            _ => Ok(()),
        }
    }

    /// Appends a request. Returns the expected reply.
    fn write(&self, values: &mut FieldValues, out: &mut Vec<u8>) -> Option<Box<[u8]>> {
        // Random fields have the same values in the request and the reply.
        let again = self.expected.is_some().then(|| values.clone());
        self.request.write(values, out);
        values.next_request();
        let (expected, mut values) = self.expected.as_ref().zip(again)?;
        let mut bytes = Vec::new();
        expected.write(&mut values, &mut bytes);
        Some(bytes.into())
    }
}

/// Parses a template with the escapes `\n`, `\r`, `\t`, `\0`, `\\`, `\"`, `\'` and `\xHH`. Fields may
/// have the names of the data's columns.
///
/// # Errors
/// Fails if an escape is unknown or a field is invalid.
pub fn script_template(text: &str, data: Option<&DataRows>) -> Result<Template, InvalidValue> {
    Template::parse_with(text, data, script_bytes)
}

/// Decodes a text with the escapes `\n`, `\r`, `\t`, `\0`, `\\`, `\"`, `\'` and `\xHH`.
///
/// # Errors
/// Fails if an escape is unknown, or if the text ends with a backslash.
pub fn script_bytes(text: &str) -> Result<Vec<u8>, InvalidValue> {
    let mut rest = text.bytes();
    let mut bytes = Vec::new();
    while let Some(byte) = rest.next() {
        let wrong = |escape: Option<char>| match escape {
            Some(escape) => invalid(format!(
                "\\{escape} is not an escape in '{text}': use \\n \\r \\t \\0 \\\\ or \\x00 to \
                 \\xff"
            )),
            None => invalid(format!("'{text}' ends with a backslash: write \\\\ for a backslash")),
        };
        bytes.push(match byte {
            b'\\' => escaped(&mut rest).map_err(wrong)?,
            byte => byte,
        });
    }
    Ok(bytes)
}

/// Decodes the escape after a backslash, and takes it from `rest`.
///
/// # Errors
/// Returns the character that is not an escape, or `None` at the end of the text.
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

pub(crate) struct ScriptExchange {
    script: Rc<Script>,
    values: FieldValues,
    /// The kind and the expected reply of each request without a reply.
    expected: VecDeque<(usize, Option<Box<[u8]>>)>,
    /// The check of the next reply, if it has begun.
    check: Option<Box<BodyCheck>>,
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
        ScriptExchange { script, values, expected: VecDeque::new(), check: None, replies, refusal }
    }
}

impl Exchange for ScriptExchange {
    type Out = Vec<u8>;

    fn request(&mut self, out: &mut Vec<u8>) -> usize {
        let index = self.values.draw(&self.script.requests);
        let request = &self.script.requests.entries()[index];
        self.expected.push_back((index, request.write(&mut self.values, out)));
        index
    }

    fn take(&mut self, input: &[u8], answered: &mut impl FnMut(Answer)) -> Result<usize, Fault> {
        let Some((kind, expected)) = self.expected.front() else {
            return Err(Fault::too_many_bytes(input.len()));
        };
        let (taken, mut is_expected) =
            self.replies.take(input, &self.script.framing, expected.as_deref(), &self.refusal)?;
        if let Some(check) = &self.script.requests.entries()[*kind].check {
            let body = self.check.get_or_insert_with(|| Box::new(BodyCheck::new(check)));
            body.take(check, &input[..taken]);
            if let Some(is_whole) = &mut is_expected
                && let Some(body) = self.check.take()
                && let Err(found) = body.finish(check)
            {
                self.refusal.record(|| [b"the reply ", &found[..]].concat());
                *is_whole = false;
            }
        }
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
        self.values.repeat(&self.script.requests, self.expected.len());
        (self.replies, self.check) = (ReplyParser::default(), None);
        self.expected.clear();
    }
}

#[cfg(test)]
mod tests;
