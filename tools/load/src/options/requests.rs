//! Requests of HTTP, and of protocols that the user describes.

use super::target::Target;
use super::targets::TargetFile;
use super::{Options, OptionsError, read, read_text, usage};
use crate::exchange::http::{Http, HttpRequest};
use crate::exchange::script::{Framing, Script, ScriptRequest, script_bytes, script_template};
use crate::expected::Expected;
use crate::invalid::counted;
use crate::mix::{DataRows, Mix, Template, split_weight};
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use std::convert::Infallible;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

/// A request in the options: a line such as `3*GET /PATH`, or a table in a file.
#[derive(Clone, Debug, PartialEq)]
pub enum RequestSpec {
    /// A request in one line, or `@FILE` for several.
    Line(String),
    /// A request whose parts are separate keys.
    Table(Box<RequestTable>),
}

/// A request whose parts are separate keys: `[[request]]` in a file.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct RequestTable {
    /// How often the request is drawn, relative to the others: 1 by default.
    pub weight: Option<f64>,
    /// The method: `GET`, or `POST` with a body, by default.
    pub method: Option<String>,
    /// The path, which may have fields.
    pub path: String,
    /// Headers of this request, each `NAME: VALUE`. They follow the headers of all requests.
    pub header: Vec<String>,
    /// The body, which may have fields.
    pub body: Option<String>,
    /// A file whose contents are sent as the body.
    pub body_file: Option<PathBuf>,
    /// The expected body of the reply, as for `--expect`.
    pub expect: Option<String>,
}

impl FromStr for RequestSpec {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<RequestSpec, Infallible> {
        Ok(RequestSpec::Line(text.to_owned()))
    }
}

impl<'de> Deserialize<'de> for RequestSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RequestSpec, D::Error> {
        deserializer.deserialize_any(SpecVisitor)
    }
}

struct SpecVisitor;

impl<'de> Visitor<'de> for SpecVisitor {
    type Value = RequestSpec;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a request such as \"GET /PATH\", or a table with a path")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<RequestSpec, E> {
        Ok(RequestSpec::Line(text.to_owned()))
    }

    fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<RequestSpec, M::Error> {
        let table = RequestTable::deserialize(MapAccessDeserializer::new(map))?;
        Ok(RequestSpec::Table(Box::new(table)))
    }
}

impl Options {
    pub(super) fn http(
        &self,
        target: &Target,
        file: Option<TargetFile>,
    ) -> Result<Http, OptionsError> {
        let headers = self.headers.iter().map(|text| parse_header(text));
        let data = self.data_rows()?;
        Ok(Http {
            authority: target.authority.clone(),
            headers: headers.collect::<Result<_, _>>().map_err(usage)?,
            requests: self.http_mix(target, file, data.as_deref())?,
            data,
            cookies: self.cookies,
        })
    }

    fn data_rows(&self) -> Result<Option<Arc<DataRows>>, OptionsError> {
        let Some(path) = &self.data else { return Ok(None) };
        let rows = DataRows::parse(&read(path)?);
        rows.map(|rows| Some(Arc::new(rows)))
            .map_err(|error| usage(format!("{}: {error}", path.display())))
    }

    fn http_mix(
        &self,
        target: &Target,
        file: Option<TargetFile>,
        data: Option<&DataRows>,
    ) -> Result<Mix<HttpRequest>, OptionsError> {
        let has_one = self.method.is_some() || self.body.is_some() || self.body_file.is_some();
        if file.is_some() && (has_one || !self.requests.is_empty()) {
            return Err(usage(
                "the requests of --targets have methods and bodies: leave --method, --body, \
                 --body-file and --request out",
            ));
        }
        let is_in_order = self.in_order || file.is_some();
        let mut weighted = match file {
            Some(file) => file.requests.into_iter().map(|request| (1.0, request)).collect(),
            None if self.requests.is_empty() => vec![(1.0, self.single_request(target)?)],
            None if target.path != "/" => {
                return Err(usage(format!(
                    "{target} has a path, but so have the requests: leave one of them out"
                )));
            }
            None => self.listed_requests(data)?,
        };
        let requests = weighted.iter_mut().map(|(_, request)| &mut request.expected);
        self.set_expected(requests.collect())?;
        mix(weighted, is_in_order)
    }

    /// Returns the request for the target's path.
    fn single_request(&self, target: &Target) -> Result<HttpRequest, OptionsError> {
        let from_file = self.body_file.as_deref().map(read).transpose()?;
        let body = self.body.clone().map(String::into_bytes).or(from_file);
        let usual = if body.is_some() { "POST" } else { "GET" };
        let method = self.method.as_deref().unwrap_or(usual);
        let body = body.map(Template::constant);
        Ok(HttpRequest { body, ..HttpRequest::new(method, &target.path) })
    }

    /// Returns the requests of the option and key `request`, with their weights.
    fn listed_requests(
        &self,
        data: Option<&DataRows>,
    ) -> Result<Vec<(f64, HttpRequest)>, OptionsError> {
        let mut requests = Vec::new();
        for spec in &self.requests {
            let texts = match spec {
                RequestSpec::Table(table) => {
                    requests.push((table.weight.unwrap_or(1.0), table.request(data)?));
                    continue;
                }
                RequestSpec::Line(text) => match text.strip_prefix('@') {
                    Some(file) => lines(Path::new(file))?,
                    None => vec![text.clone()],
                },
            };
            for text in texts {
                let (weight, text) = split_weight(&text);
                requests.push((weight, parse_request(text, data).map_err(usage)?));
            }
        }
        Ok(requests)
    }

    /// Sets the expected bodies of requests that have none of their own: one for all, or one for
    /// each.
    fn set_expected(&self, requests: Vec<&mut Option<Expected>>) -> Result<(), OptionsError> {
        let expected = self.expect.iter().map(|text| expected_body(text));
        let expected = expected.collect::<Result<Vec<_>, _>>()?;
        check_expect_count(expected.len(), requests.len())?;
        for (request, expected) in requests.into_iter().zip(expected.iter().cycle()) {
            request.get_or_insert_with(|| expected.clone());
        }
        Ok(())
    }

    pub(super) fn script(&self) -> Result<Script, OptionsError> {
        let data = self.data_rows()?;
        let template = |text: &str| template(text, data.as_deref());
        let expected = self.expect.iter().map(|text| ScriptExpected::parse(text, &template));
        let expected = expected.collect::<Result<Vec<_>, _>>()?;
        let framing = self.framing(&expected)?;
        check_expect_count(expected.len(), self.send.len())?;
        let mut replies = expected.iter().cycle();
        let mut weighted = Vec::new();
        for text in &self.send {
            let (weight, text) = split_weight(text);
            let (expected, check) = match replies.next() {
                None => (None, None),
                Some(ScriptExpected::Reply(reply)) => (Some(reply.clone()), None),
                Some(ScriptExpected::Check(check)) => (None, Some(check.clone())),
            };
            weighted.push((weight, ScriptRequest { request: template(text)?, expected, check }));
        }
        Ok(Script { requests: mix(weighted, self.in_order)?, framing, data })
    }

    fn framing(&self, expected: &[ScriptExpected]) -> Result<Framing, OptionsError> {
        if let Some(until) = &self.reply_until {
            return script_bytes(until).map(Framing::Delimiter).map_err(usage);
        }
        if let Some(field) = self.reply_length_field {
            return Ok(Framing::LengthField(field));
        }
        let mut lengths = expected.iter().map(ScriptExpected::length);
        let first = lengths.next().flatten();
        let all = first.filter(|_| lengths.all(|length| length == first));
        self.reply_length.or(all).map(Framing::Fixed).ok_or_else(|| {
            usage(
                "the end of a reply is not defined: add --reply-until, --reply-length, \
                 --reply-length-field, or --expect without fields, whose replies have the same \
                 length",
            )
        })
    }
}

enum ScriptExpected {
    Reply(Template),
    Check(Expected),
}

impl ScriptExpected {
    fn parse(
        text: &str,
        template: &impl Fn(&str) -> Result<Template, OptionsError>,
    ) -> Result<ScriptExpected, OptionsError> {
        match text.split_once(':') {
            Some(("text", text)) => template(text).map(ScriptExpected::Reply),
            Some(("length" | "regex" | "sha256", _)) => {
                text.parse().map(ScriptExpected::Check).map_err(usage)
            }
            _ => template(text).map(ScriptExpected::Reply),
        }
    }

    /// Returns the length of the expected reply, if it is known before the run.
    fn length(&self) -> Option<usize> {
        match self {
            ScriptExpected::Reply(reply) => reply.as_constant().map(<[u8]>::len),
            ScriptExpected::Check(Expected::Length(length)) => usize::try_from(*length).ok(),
            ScriptExpected::Check(_) => None,
        }
    }
}

/// Creates a weighted mix, or a session of requests in order, which must not have weights.
fn mix<T>(weighted: Vec<(f64, T)>, is_in_order: bool) -> Result<Mix<T>, OptionsError> {
    if !is_in_order {
        return Mix::new(weighted).map_err(usage);
    }
    if let Some((weight, _)) = weighted.iter().find(|(weight, _)| *weight != 1.0) {
        return Err(usage(format!(
            "the weight {weight} has no effect on requests in order: leave one of them out"
        )));
    }
    Mix::in_order(weighted.into_iter().map(|(_, request)| request)).map_err(usage)
}

/// Checks that there are as many expectations as requests, one, or none.
fn check_expect_count(expected: usize, requests: usize) -> Result<(), OptionsError> {
    if expected > 1 && expected != requests {
        return Err(usage(format!(
            "there are {expected} --expect for {}: give one for each request, or one for all",
            counted(requests, "request")
        )));
    }
    Ok(())
}

/// Parses an expected body, or reads it from a file.
fn expected_body(text: &str) -> Result<Expected, OptionsError> {
    match text.strip_prefix('@') {
        Some(file) => read(Path::new(file)).map(Expected::Text),
        None => text.parse().map_err(usage),
    }
}

/// Parses a text with escapes and fields. For `@FILE`, returns the contents of the file unchanged.
fn template(text: &str, data: Option<&DataRows>) -> Result<Template, OptionsError> {
    match text.strip_prefix('@') {
        Some(file) => read(Path::new(file)).map(Template::constant),
        None => script_template(text, data).map_err(usage),
    }
}

impl RequestTable {
    fn request(&self, data: Option<&DataRows>) -> Result<HttpRequest, OptionsError> {
        let RequestTable { method, path, header, body, body_file, expect, .. } = self;
        let place = |what: String| usage(format!("the request with the path '{path}': {what}"));
        let body = match (body, body_file) {
            (Some(_), Some(_)) => {
                return Err(place("it has body and body-file: leave one of them out".into()));
            }
            (Some(text), None) => Some(
                Template::parse_with_data(text, data)
                    .map_err(|error| place(format!("the body is invalid: {error}")))?,
            ),
            (None, Some(file)) => Some(Template::constant(read(file)?)),
            (None, None) => None,
        };
        let headers = header.iter().map(|text| parse_header(text));
        let usual = if body.is_some() { "POST" } else { "GET" };
        Ok(HttpRequest {
            headers: headers.collect::<Result<_, _>>().map_err(place)?,
            body,
            expected: expect.as_deref().map(expected_body).transpose()?,
            ..HttpRequest::new(method.as_deref().unwrap_or(usual), path)
        })
    }
}

/// Parses `/PATH`, `METHOD /PATH` or `METHOD /PATH BODY`. The body is the rest of the line.
fn parse_request(text: &str, data: Option<&DataRows>) -> Result<HttpRequest, String> {
    let text = text.trim();
    if text.starts_with('/') {
        return Ok(HttpRequest::new("GET", text));
    }
    let (method, rest) = text.split_once(char::is_whitespace).ok_or_else(|| {
        format!(
            "the request '{text}' has no path: write 'METHOD /PATH'; the number of requests \
                 is -n"
        )
    })?;
    let (path, body) = split_path(rest.trim_start());
    let body = body
        .map(|body| Template::parse_with_data(body, data))
        .transpose()
        .map_err(|error| format!("the body is invalid: {error}"))?;
    Ok(HttpRequest { body, ..HttpRequest::new(method, path) })
}

/// Splits the text into the path, which ends at the first space outside a field, and the body.
fn split_path(text: &str) -> (&str, Option<&str>) {
    let mut in_field = false;
    let end = text.find(|character: char| {
        in_field = (in_field || character == '{') && character != '}';
        character.is_whitespace() && !in_field
    });
    match end {
        Some(end) => (&text[..end], Some(text[end..].trim_start())),
        None => (text, None),
    }
}

fn parse_header(text: &str) -> Result<(String, String), String> {
    let wrong = || format!("the header '{text}' has no colon: write 'NAME: VALUE'");
    let (name, value) = text.split_once(':').ok_or_else(wrong)?;
    Ok((name.to_owned(), value.trim().to_owned()))
}

/// Reads the lines of a file, except empty lines and those that start with `#`.
fn lines(path: &Path) -> Result<Vec<String>, OptionsError> {
    let text = read_text(path)?;
    let lines = text.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    Ok(lines.map(str::to_owned).collect())
}
