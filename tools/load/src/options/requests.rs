//! Requests of HTTP, and of protocols that the user describes.

use super::target::Target;
use super::{Options, OptionsError, read, usage};
use crate::exchange::http::{Http, HttpRequest};
use crate::exchange::script::{Framing, Script, ScriptRequest, script_bytes, script_template};
use crate::mix::{Mix, Template};
use std::path::Path;

impl Options {
    pub(super) fn http(&self, target: &Target) -> Result<Http, OptionsError> {
        let headers = self.headers.iter().map(|text| parse_header(text));
        Ok(Http {
            authority: target.authority.clone(),
            headers: headers.collect::<Result<_, _>>().map_err(usage)?,
            requests: self.http_mix(target)?,
        })
    }

    fn http_mix(&self, target: &Target) -> Result<Mix<HttpRequest>, OptionsError> {
        if self.requests.is_empty() {
            let from_file = self.body_file.as_deref().map(read).transpose()?;
            let body = self.body.clone().map(String::into_bytes).or(from_file);
            let usual = if body.is_some() { "POST" } else { "GET" };
            let method = self.method.clone().unwrap_or_else(|| usual.to_owned());
            let (path, body) = (target.path.clone(), body.map(Template::constant));
            return Mix::new([(1.0, HttpRequest { method, path, body })]).map_err(usage);
        }
        if target.path != "/" {
            return Err(usage(format!(
                "{target} has a path, but so have the requests: leave one of them out"
            )));
        }
        let mut requests = Vec::new();
        for request in &self.requests {
            match request.strip_prefix('@') {
                Some(file) => requests.extend(lines(Path::new(file))?),
                None => requests.push(request.clone()),
            }
        }
        let mix = Mix::parse(&requests).map_err(usage)?;
        mix.try_map(|text| parse_request(&text)).map_err(usage)
    }

    pub(super) fn script(&self) -> Result<Script, OptionsError> {
        let expected = self.expect.iter().map(|text| template(text));
        let expected = expected.collect::<Result<Vec<_>, _>>()?;
        let framing = self.framing(&expected)?;
        let mix = Mix::parse(&self.send).map_err(usage)?.try_map(|text| template(&text))?;
        let count = mix.entries().len();
        if expected.len() > 1 && expected.len() != count {
            let text = format!(
                "there are {} --expect for {count} requests: give one for each request, or one for \
                 all",
                expected.len()
            );
            return Err(usage(text));
        }
        let mut replies = expected.iter().cycle().cloned();
        let request = |request| Ok(ScriptRequest { request, expected: replies.next() });
        Ok(Script { requests: mix.try_map::<_, OptionsError>(request)?, framing })
    }

    fn framing(&self, expected: &[Template]) -> Result<Framing, OptionsError> {
        if let Some(until) = &self.reply_until {
            return script_bytes(until).map(Framing::Delimiter).map_err(usage);
        }
        if let Some(field) = self.reply_length_field {
            return Ok(Framing::LengthField(field));
        }
        let mut lengths = expected.iter().map(|reply| reply.as_constant().map(<[u8]>::len));
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

/// Parses a text with escapes and fields, or reads a file.
fn template(text: &str) -> Result<Template, OptionsError> {
    match text.strip_prefix('@') {
        Some(file) => read(Path::new(file)).map(Template::constant),
        None => script_template(text).map_err(usage),
    }
}

/// Parses `/PATH`, `METHOD /PATH` or `METHOD /PATH BODY`; the body is everything after the space.
fn parse_request(text: &str) -> Result<HttpRequest, String> {
    let text = text.trim();
    if text.starts_with('/') {
        return Ok(HttpRequest::new("GET", text));
    }
    let (method, rest) = text
        .split_once(char::is_whitespace)
        .ok_or_else(|| format!("the request '{text}' has no path: write 'METHOD /PATH'"))?;
    let (path, body) = split_path(rest.trim_start());
    let body = body
        .map(str::parse)
        .transpose()
        .map_err(|error| format!("the body is invalid: {error}"))?;
    Ok(HttpRequest { method: method.into(), path: path.into(), body })
}

/// Splits off the path, which ends at the first space outside a field, from the body.
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
    let wrong = |_| OptionsError::Failed(format!("{} is not UTF-8 text", path.display()));
    let text = String::from_utf8(read(path)?).map_err(wrong)?;
    let lines = text.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    Ok(lines.map(str::to_owned).collect())
}
