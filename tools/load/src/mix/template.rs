//! Request templates: text with fields.

use super::{DataRows, FieldValues};
use crate::invalid::{InvalidValue, invalid};
use std::io::Write;
use std::str::FromStr;

/// The maximum number of characters that `{hex N}` and `{text N}` write.
const MAX_CHARACTERS: u64 = 1 << 20;
/// The characters that `{text N}` writes.
const TEXT_ALPHABET: &[u8; 64] =
    b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";

/// Text with fields that are replaced in each request:
///
/// | field | is replaced with |
/// |---|---|
/// | `{n}` | the number of the request, from 0, which no other request of the run has |
/// | `{client}` | the number of the client, from 0 |
/// | `{client-n}` | the number of the request among its client's requests, from 1 |
/// | `{client-id}` | a random number of the client; the only field that does not depend on the seed |
/// | `{random A B}` | a random number from A to B, uniformly distributed |
/// | `{hex N}` | N random hexadecimal digits |
/// | `{text N}` | N random characters of `a`–`z`, `A`–`Z`, `0`–`9`, `-` and `_` |
/// | `{COLUMN}` | the value in this column of the data, if there is data |
/// | `{{` | a brace `{` |
///
/// A `}` outside a field is written as it is.
///
/// ```
/// use annulus_load::{FieldValues, Template};
///
/// let template: Template = r#"{{"id": {n}, "user": "{random 1 9}"}"#.parse().unwrap();
/// let mut body = Vec::new();
/// template.write(&mut FieldValues::new(1, 0, 1), &mut body);
/// assert!(body.starts_with(br#"{"id": 0, "user": ""#) && body.ends_with(b"\"}"));
///
/// let error = "GET key:{n".parse::<Template>().unwrap_err().to_string();
/// assert!(error.starts_with("the field '{n' at character 9 is not closed"), "{error}");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(Vec<u8>),
    Number,
    Client,
    ClientNumber,
    ClientId,
    Random(u64, u64),
    Hex(u64),
    Characters(u64),
    /// The value in a column of the data.
    Column(usize),
    /// The `Cookie` header, if there are cookies for the request line and headers before it.
    Cookies,
}

/// The names of built-in fields, which no column may have.
pub(super) const FIELD_NAMES: [&str; 7] =
    ["n", "client", "client-n", "client-id", "random", "hex", "text"];

impl Template {
    /// Creates a template without fields. Braces are ordinary bytes.
    pub fn constant(bytes: impl Into<Vec<u8>>) -> Template {
        let bytes = bytes.into();
        let parts = if bytes.is_empty() { Vec::new() } else { vec![Part::Text(bytes)] };
        Template { parts }
    }

    /// Parses a template that may have fields with the names of the data's columns.
    ///
    /// # Errors
    /// Fails if a field is unterminated or unknown.
    pub fn parse_with_data(text: &str, data: Option<&DataRows>) -> Result<Template, InvalidValue> {
        Template::parse_with(text, data, |text| Ok(text.as_bytes().to_vec()))
    }

    /// Like [`Template::parse_with_data`], but `decode` converts the text between fields to bytes,
    /// for example to handle escapes.
    ///
    /// # Errors
    /// Fails if a field is unterminated or unknown, or if `decode` fails.
    pub fn parse_with(
        text: &str,
        data: Option<&DataRows>,
        mut decode: impl FnMut(&str) -> Result<Vec<u8>, InvalidValue>,
    ) -> Result<Template, InvalidValue> {
        let columns = data.map_or(&[][..], DataRows::columns);
        let mut template = Template { parts: Vec::new() };
        let mut rest = text;
        while let Some(at) = rest.find('{') {
            template.push_text(decode(&rest[..at])?);
            let field = &rest[at..];
            if let Some(after) = field.strip_prefix("{{") {
                template.push_text(b"{".to_vec());
                rest = after;
                continue;
            }
            let character = text[..text.len() - field.len()].chars().count() + 1;
            let error = |what: String| {
                invalid(format!(
                    "the field '{}' at character {character} {what}",
                    quote_field(field)
                ))
            };
            let no_end = || error("is not closed: end it with }, or write {{ for a brace".into());
            let end = field.find('}').ok_or_else(no_end)?;
            template.parts.push(parse_field(&field[1..end], columns).map_err(error)?);
            rest = &field[end + 1..];
        }
        template.push_text(decode(rest)?);
        Ok(template)
    }

    /// Appends bytes in which braces are ordinary bytes.
    pub(crate) fn append(&mut self, bytes: &[u8]) {
        self.push_text(bytes.to_vec());
    }

    /// Appends a field to the head of a request: the client's `Cookie` header with its line ending,
    /// or nothing if no cookie applies.
    pub(crate) fn append_cookies(&mut self) {
        self.parts.push(Part::Cookies);
    }

    /// Returns the bytes if the template has no fields.
    pub fn as_constant(&self) -> Option<&[u8]> {
        match self.parts.as_slice() {
            [] => Some(&[]),
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// Returns true if the template has a field that is replaced with a value of the data.
    pub(crate) fn uses_data(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Column(_)))
    }

    /// Appends the text with its fields replaced. Random fields are drawn again each time.
    pub fn write(&self, values: &mut FieldValues, out: &mut Vec<u8>) {
        let start = out.len();
        for part in &self.parts {
            match *part {
                Part::Text(ref text) => out.extend_from_slice(text),
                Part::Number => write_number(values.number(), out),
                Part::Client => write_number(values.client(), out),
                Part::ClientNumber => write_number(values.number_of_client(), out),
                Part::ClientId => write_number(values.id, out),
                Part::Column(column) => {
                    let data = values.data.as_ref().expect("a column exists without data");
                    out.extend_from_slice(data.value(values.row, column));
                }
                Part::Cookies => values.cookies.write_header(start, out),
                Part::Random(least, most) => write_number(values.random.u64(least..=most), out),
                Part::Hex(count) => {
                    out.extend((0..count).map(|_| b"0123456789abcdef"[values.random.usize(..16)]));
                }
                Part::Characters(count) => {
                    out.extend((0..count).map(|_| TEXT_ALPHABET[values.random.usize(..64)]));
                }
            }
        }
    }

    fn push_text(&mut self, text: Vec<u8>) {
        match self.parts.last_mut() {
            _ if text.is_empty() => {}
            Some(Part::Text(before)) => before.extend(text),
            _ => self.parts.push(Part::Text(text)),
        }
    }
}

fn write_number(number: u64, out: &mut Vec<u8>) {
    // Writing to memory does not fail.
    let _ = write!(out, "{number}");
}

/// Parses the inside of a field: `name argument argument`.
fn parse_field(field: &str, columns: &[String]) -> Result<Part, String> {
    let words: Vec<_> = field.split_whitespace().collect();
    let number =
        |text: &str| text.parse::<u64>().map_err(|_| format!("needs a number instead of '{text}'"));
    let count = |text| match number(text)? {
        count if count <= MAX_CHARACTERS => Ok(count),
        _ => Err(format!("is too long: use at most {MAX_CHARACTERS} characters")),
    };
    match words.as_slice() {
        ["n"] => Ok(Part::Number),
        ["client"] => Ok(Part::Client),
        ["client-n"] => Ok(Part::ClientNumber),
        ["client-id"] => Ok(Part::ClientId),
        ["random", least, most] => match (number(least)?, number(most)?) {
            (least, most) if least <= most => Ok(Part::Random(least, most)),
            _ => Err("ends before it starts: write the smaller number first".into()),
        },
        ["hex", characters] => count(characters).map(Part::Hex),
        ["text", characters] => count(characters).map(Part::Characters),
        [name] if columns.iter().any(|column| column == name) => {
            Ok(Part::Column(columns.iter().take_while(|column| column != name).count()))
        }
        _ => {
            let columns: String = columns.iter().map(|name| format!(", {{{name}}}")).collect();
            Err(format!(
                "is unknown: write {{n}}, {{client}}, {{client-n}}, {{client-id}}, \
                 {{random 1 100}}, {{hex 8}}, {{text 8}}{columns}, or {{{{ for a brace"
            ))
        }
    }
}

/// Returns the start of a text up to the end of its first field, shortened if it is long.
fn quote_field(text: &str) -> String {
    let field = text.split_inclusive('}').next().unwrap_or_default();
    let beginning: String = field.chars().take(40).collect();
    if beginning.len() < field.len() { beginning + "…" } else { beginning }
}

impl FromStr for Template {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Template, InvalidValue> {
        Template::parse_with_data(text, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(text: &str) -> String {
        let template: Template = text.parse().unwrap();
        let (mut values, mut out) = (FieldValues::new(1, 2, 5), Vec::new());
        values.next_request();
        template.write(&mut values, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn template_fields_are_replaced() {
        assert_eq!(written("a {n} b{client} {client-n}"), "a 7 b2 2");
        assert_eq!(written("{{n} } {{{n}}"), "{n} } {7}");
        assert_eq!(written("{random 5 5}-{ n }"), "5-7");
        let hex = written("{hex 12}");
        assert!(hex.len() == 12 && u64::from_str_radix(&hex, 16).is_ok(), "{hex}");
        let text = written("{text 300}");
        assert!(
            text.len() == 300 && text.bytes().all(|byte| TEXT_ALPHABET.contains(&byte)),
            "{text}"
        );
        assert_eq!(written("{text 0}ü"), "ü");
    }

    #[test]
    fn client_id_is_constant_and_differs_from_client_to_client() {
        let mut ids = [0, 1].map(|client| {
            let template: Template = "{client-id} ".parse().unwrap();
            let (mut values, mut out) = (FieldValues::new(1, client, 2), Vec::new());
            for _ in 0..3 {
                template.write(&mut values, &mut out);
                values.next_request();
            }
            let text = String::from_utf8(out).unwrap();
            let ids: Vec<u64> = text.split_whitespace().map(|id| id.parse().unwrap()).collect();
            assert!(ids.len() == 3 && ids.iter().all(|id| *id == ids[0]), "{text}");
            ids[0]
        });
        ids.sort_unstable();
        assert!(0 < ids[0] && ids[0] < ids[1]);
    }

    #[test]
    fn random_field_draws_new_numbers_including_both_bounds() {
        let template: Template = "{random 3 5} ".parse().unwrap();
        let (mut values, mut out) = (FieldValues::new(1, 0, 1), Vec::new());
        (0..200).for_each(|_| template.write(&mut values, &mut out));
        let text = String::from_utf8(out).unwrap();
        let drawn: std::collections::BTreeSet<_> = text.split_whitespace().collect();
        assert!(drawn.iter().eq(&["3", "4", "5"]), "{drawn:?}");
    }

    #[test]
    fn template_error_shows_the_field_and_its_position() {
        for (text, part) in [
            ("GET key:{n", "'{n' at character 9 is not closed: end it with }, or write {{"),
            ("ü{", "'{' at character 2 is not closed"),
            ("a {m} b {n}", "'{m}' at character 3 is unknown: write {n}"),
            ("{}", "'{}' at character 1 is unknown"),
            ("{random 1}", "is unknown"),
            ("{random 1 x}", "needs a number instead of 'x'"),
            ("{random 1 -5}", "instead of '-5'"),
            ("{random 5 1}", "ends before it starts"),
            ("{hex 99999999}", "use at most 1048576 characters"),
        ] {
            let error = text.parse::<Template>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn parsing_never_panics_and_keeps_text_without_braces(text in "\\PC{0,20}|[{}a-n0-9 '\"]{0,20}") {
            let parsed = text.parse::<Template>();
            if !text.contains('{') {
                prop_assert_eq!(parsed, Ok(Template::constant(text)));
            }
        }

        #[test]
        fn doubled_braces_become_single_braces(text in "\\PC{0,20}") {
            let doubled = text.replace('{', "{{");
            prop_assert_eq!(doubled.parse::<Template>().unwrap(), Template::constant(text));
        }
    }
}
