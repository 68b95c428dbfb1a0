//! Target files of vegeta: one request after another, as text or as JSON.

use super::target::Target;
use super::{OptionsError, read, read_text, usage};
use crate::exchange::http::HttpRequest;
use crate::mix::Template;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// The requests of a target file, which all go to one server.
#[derive(Debug)]
pub(super) struct TargetFile {
    /// The URL of the first request.
    pub(super) target: Target,
    pub(super) requests: Vec<HttpRequest>,
}

/// A request in the JSON form.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonTarget {
    method: String,
    url: String,
    /// Encoded as base64.
    body: Option<String>,
    #[serde(default)]
    header: BTreeMap<String, Vec<String>>,
}

/// A request whose parts have not been checked yet.
struct RawRequest {
    method: String,
    url: String,
    headers: Vec<(String, String)>,
    body: Option<Vec<u8>>,
}

/// Reads a target file.
///
/// # Errors
/// Fails if the file cannot be read or a line is invalid.
pub(super) fn read_targets(path: &Path) -> Result<TargetFile, OptionsError> {
    parse(&read_text(path)?)
        .map_err(|(line, why)| usage(format!("{}:{line}: {why}", path.display())))
}

/// # Errors
/// Returns the number of the first invalid line, and the reason.
fn parse(text: &str) -> Result<TargetFile, (usize, String)> {
    let mut lines = (1..).zip(text.lines()).peekable();
    let (mut file, mut last) = (None::<TargetFile>, 1);
    while let Some((number, line)) = lines.next() {
        let line = line.trim();
        last = number;
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let request = if line.starts_with('{') {
            parse_json(line).map_err(|why| (number, why))?
        } else {
            let mut request = parse_first_line(line).map_err(|why| (number, why))?;
            let is_next = |line: &str| line.starts_with('{') || parse_first_line(line).is_ok();
            let is_more = |line: &str| !line.is_empty() && !is_next(line);
            while let Some((number, line)) = lines.next_if(|(_, line)| is_more(line.trim())) {
                add_line(&mut request, line.trim()).map_err(|why| (number, why))?;
            }
            request
        };
        add(&mut file, request).map_err(|why| (number, why))?;
    }
    file.ok_or_else(|| (last, "there is no request: write 'GET http://HOST:PORT/PATH'".into()))
}

/// Parses `METHOD URL`.
fn parse_first_line(line: &str) -> Result<RawRequest, String> {
    let wrong = || format!("'{line}' is not a request: write 'GET http://HOST:PORT/PATH'");
    let (method, url) = line.trim().split_once(char::is_whitespace).ok_or_else(wrong)?;
    let is_method = !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_uppercase());
    let url = url.trim();
    if !is_method || url.contains(char::is_whitespace) {
        return Err(wrong());
    }
    let (method, url) = (method.to_owned(), url.to_owned());
    Ok(RawRequest { method, url, headers: Vec::new(), body: None })
}

/// Parses a line after the first one of a request: a header, `@FILE`, or a comment.
fn add_line(request: &mut RawRequest, line: &str) -> Result<(), String> {
    if line.starts_with('#') {
        return Ok(());
    }
    if let Some(file) = line.strip_prefix('@') {
        request.body = Some(read(Path::new(file)).map_err(|error| error.to_string())?);
        return Ok(());
    }
    let wrong = || format!("'{line}' is not a header: write 'NAME: VALUE', or @FILE for the body");
    let (name, value) = line.split_once(':').ok_or_else(wrong)?;
    request.headers.push((name.trim().to_owned(), value.trim().to_owned()));
    Ok(())
}

fn parse_json(line: &str) -> Result<RawRequest, String> {
    let JsonTarget { method, url, body, header } =
        serde_json::from_str(line).map_err(|error| error.to_string())?;
    let decoded = body.map(|body| STANDARD.decode(body)).transpose();
    let body = decoded.map_err(|error| format!("the body is not base64: {error}"))?;
    let pairs = header.into_iter();
    let headers =
        pairs.flat_map(|(name, values)| values.into_iter().map(move |value| (name.clone(), value)));
    Ok(RawRequest { method, url, headers: headers.collect(), body })
}

/// Adds a request to the file. Braces in it are ordinary characters.
fn add(file: &mut Option<TargetFile>, request: RawRequest) -> Result<(), String> {
    let RawRequest { method, url, headers, body } = request;
    let target = Target::parse(&url).map_err(|why| format!("'{url}': {why}"))?;
    if !target.scheme.is_http() {
        return Err(format!("'{url}' is not an HTTP URL: write http://HOST:PORT/PATH"));
    }
    let literal = |text: &str| text.replace('{', "{{");
    let headers = headers.iter().map(|(name, value)| (name.clone(), literal(value))).collect();
    let request = HttpRequest {
        headers,
        body: body.map(Template::constant),
        ..HttpRequest::new(method, literal(&target.path))
    };
    request.validate(None).map_err(|error| error.to_string())?;
    match file {
        Some(TargetFile { target: first, requests }) => {
            let is_same = first.scheme == target.scheme && first.authority == target.authority;
            if !is_same {
                return Err(format!(
                    "{target} is on another server than {first}: a file is for one server"
                ));
            }
            requests.push(request);
        }
        None => *file = Some(TargetFile { target, requests: vec![request] }),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_file_of_vegeta_is_read() {
        let body = std::env::temp_dir().join(format!("annulus-load-body-{}", std::process::id()));
        std::fs::write(&body, "{x}").unwrap();
        let text = format!(
            "# a comment\nGET http://a:1/{{id}}?q\nX-One: 1: 2\nX-Two: {{y}}\n\nPOST http://a:1/b\n@{}\n\
             # another\nDELETE http://a:1/c\n{{\"method\": \"PUT\", \"url\": \"http://a:1/d\", \"body\": \
             \"aGk=\", \"header\": {{\"H\": [\"v\", \"w\"]}}}}\n",
            body.display()
        );
        let TargetFile { target, requests } = parse(&text).unwrap();
        std::fs::remove_file(&body).unwrap();
        assert_eq!(target.authority, "a:1");
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let get = HttpRequest {
            headers: vec![pair("X-One", "1: 2"), pair("X-Two", "{{y}")],
            ..HttpRequest::new("GET", "/{{id}?q")
        };
        let body = Some(Template::constant("{x}"));
        let post = HttpRequest { body, ..HttpRequest::new("POST", "/b") };
        let put = HttpRequest {
            headers: vec![pair("H", "v"), pair("H", "w")],
            body: Some(Template::constant("hi")),
            ..HttpRequest::new("PUT", "/d")
        };
        assert_eq!(requests, [get, post, HttpRequest::new("DELETE", "/c"), put]);
    }

    #[test]
    fn malformed_line_is_named() {
        for (text, line, part) in [
            ("", 1, "there is no request"),
            ("# x\n\n", 2, "there is no request"),
            ("GET http://a:1/\n\nfetch it\n", 3, "'fetch it' is not a request"),
            ("GET /a\n", 1, "'/a'"),
            ("GET http://a:1/\nno header\n", 2, "'no header' is not a header"),
            ("GET http://a:1/\n@/nowhere/x\n", 2, "cannot read /nowhere/x"),
            ("GET http://a:1/\n\nGET http://b:1/x\n", 3, "is on another server than http://a:1/"),
            ("GET http://a:1/\nGET https://a:1/x\n", 2, "is on another server"),
            ("GET udp://a:1\n", 1, "is not an HTTP URL"),
            ("GET http://a:1/\nBad Name: x\n", 1, "\"Bad Name\" is not a valid header name"),
            ("{\"method\": \"GET\"}\n", 1, "missing field `url`"),
            ("{\"method\": \"GET\", \"url\": \"http://a:1/\", \"body\": \"%\"}", 1, "not base64"),
        ] {
            let (found, error) = parse(text).unwrap_err();
            assert!(found == line && error.contains(part), "{text:?}: line {found}: {error}");
        }
    }
}
