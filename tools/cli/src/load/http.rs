//! Options of HTTP.

use super::target::Target;
use crate::usage::UsageError;
use annulus_load::{Http, HttpRequest, Mix, Template};
use anyhow::{Context, Result};
use clap::Args;
use std::path::{Path, PathBuf};

/// Requests of HTTP
#[derive(Args, Debug)]
#[command(next_help_heading = "HTTP, for targets http:// and https://")]
pub(super) struct HttpArgs {
    /// The method [default: GET, and POST if there is a body]
    #[arg(short = 'X', long, value_name = "METHOD")]
    method: Option<String>,
    /// A header, such as 'accept: text/html'; may be repeated
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = parse_header)]
    headers: Vec<(String, String)>,
    /// The body, as it is
    #[arg(short = 'd', long, value_name = "TEXT", group = "http_body")]
    body: Option<String>,
    /// The body, with fields such as {client}
    #[arg(long, value_name = "TEXT", group = "http_body")]
    body_template: Option<Template>,
    /// A file with the body, as it is
    #[arg(long, value_name = "FILE", group = "http_body")]
    body_file: Option<PathBuf>,
    /// A request in place of that of the target's path: '/PATH', 'METHOD /PATH'
    /// or 'METHOD /PATH BODY'; may be repeated, with weights: '9*/a' '1*/b'
    #[arg(long = "request", value_name = "REQUEST",
          conflicts_with_all = ["method", "http_body", "requests_file"])]
    requests: Vec<String>,
    /// A file with such requests, one a line
    #[arg(long, value_name = "FILE", conflicts_with_all = ["method", "http_body"])]
    requests_file: Option<PathBuf>,
    /// HTTP/2: by ALPN over TLS, else without a question (prior knowledge);
    /// --pipeline says how many requests a connection has at once
    #[arg(long)]
    h2: bool,
}

impl HttpArgs {
    /// Which options were given.
    pub(super) fn given(&self) -> [(&'static str, bool); 8] {
        [
            ("--method", self.method.is_some()),
            ("--header", !self.headers.is_empty()),
            ("--body", self.body.is_some()),
            ("--body-template", self.body_template.is_some()),
            ("--body-file", self.body_file.is_some()),
            ("--request", !self.requests.is_empty()),
            ("--requests-file", self.requests_file.is_some()),
            ("--h2", self.h2),
        ]
    }

    /// Whether to speak HTTP/2.
    pub(super) fn is_h2(&self) -> bool {
        self.h2
    }

    /// The requests for a target.
    pub(super) fn requests(self, target: &Target) -> Result<Http> {
        let is_h2 = self.h2;
        let authority = target.authority.clone();
        let (headers, requests) = (self.headers.clone(), self.mix(target)?);
        let http = Http { authority, headers, requests };
        let checked = if is_h2 { http.validate_http2() } else { http.validate() };
        checked.map_err(usage)?;
        Ok(http)
    }

    fn mix(self, target: &Target) -> Result<Mix<HttpRequest>> {
        let mut requests = self.requests;
        if let Some(path) = &self.requests_file {
            requests.extend(lines(path)?);
        } else if requests.is_empty() {
            let from_file = self.body_file.as_deref().map(read).transpose()?;
            let text = self.body.map(String::into_bytes).or(from_file);
            let body = text.map(Template::constant).or(self.body_template);
            let usual = if body.is_some() { "POST" } else { "GET" };
            let method = self.method.unwrap_or_else(|| usual.to_owned());
            let path = target.path.clone();
            return Ok(Mix::new([(1.0, HttpRequest { method, path, body })])?);
        }
        if target.path != "/" {
            let text = format!("{target} has a path, and so have requests: leave one out");
            return Err(UsageError(text).into());
        }
        let mix = Mix::parse(&requests).map_err(usage)?;
        Ok(mix.try_map(|text| parse_request(&text)).map_err(UsageError)?)
    }
}

fn usage(error: impl std::fmt::Display) -> UsageError {
    UsageError(error.to_string())
}

/// A request: `/PATH`, `METHOD /PATH` or `METHOD /PATH BODY`.
fn parse_request(text: &str) -> Result<HttpRequest, String> {
    let text = text.trim();
    if text.starts_with('/') {
        return Ok(HttpRequest::new("GET", text));
    }
    let (method, rest) = text
        .split_once(char::is_whitespace)
        .ok_or_else(|| format!("the request '{text}' has no path: write 'METHOD /PATH'"))?;
    let (path, body) = split_path(rest.trim_start());
    let body = body.map(str::parse).transpose().map_err(|error| format!("the body: {error}"))?;
    Ok(HttpRequest { method: method.into(), path: path.into(), body })
}

/// The path, up to white space outside of fields, and what is behind it.
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
    let (name, value) = text.split_once(':').ok_or("no colon: write 'NAME: VALUE'")?;
    Ok((name.to_owned(), value.trim().to_owned()))
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// The lines of a file that are neither empty nor comments.
fn lines(path: &Path) -> Result<Vec<String>> {
    let text =
        String::from_utf8(read(path)?).with_context(|| format!("{} is no text", path.display()))?;
    let lines = text.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    Ok(lines.map(str::to_owned).collect())
}
