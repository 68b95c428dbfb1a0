//! The HTTP/2 requests of a run.

use crate::exchange::http::{Http, HttpRequest, invalid_authority, is_host_header};
use crate::expected::Expected;
use crate::invalid::{InvalidValue, invalid};
use crate::mix::{FieldValues, Mix, Template};
use bytes::Bytes;
use http::Request;
use http::uri::{Authority, Scheme};
use std::rc::Rc;

/// The requests of a run, which all clients of a thread share.
#[derive(Debug)]
pub(crate) struct Requests {
    mix: Mix<RequestTemplate>,
}

#[derive(Debug)]
struct RequestTemplate {
    method: String,
    uri: Template,
    headers: Vec<(String, Template)>,
    body: Option<Template>,
    has_cookies: bool,
    expected: Option<Rc<Expected>>,
    /// The request with its body, if neither has fields.
    constant: Option<(Request<()>, Option<Bytes>)>,
}

pub(super) struct NextRequest {
    pub(super) head: Request<()>,
    pub(super) body: Option<Bytes>,
    pub(super) expected: Option<Rc<Expected>>,
}

/// The maximum length of a URI in the crate http.
const MAX_URI_BYTES: usize = u16::MAX as usize - 1;

/// HTTP/1 headers about the connection, which HTTP/2 does not have.
const CONNECTION_HEADERS: [&str; 4] = ["connection", "keep-alive", "proxy-connection", "upgrade"];

impl Requests {
    /// # Errors
    /// Fails for the first part that is invalid or does not exist in HTTP/2.
    pub(crate) fn new(http: &Http, is_encrypted: bool) -> Result<Requests, InvalidValue> {
        http.validate()?;
        let scheme = if is_encrypted { "https" } else { "http" };
        let mix =
            http.requests.clone().try_map(|request| RequestTemplate::new(http, scheme, request))?;
        Ok(Requests { mix })
    }

    /// Returns the next request of a client, and its index in the mix.
    pub(super) fn next(&self, values: &mut FieldValues) -> (usize, NextRequest) {
        let index = values.draw(&self.mix);
        let kind = &self.mix.entries()[index];
        let (head, body) = match &kind.constant {
            Some(constant) => constant.clone(),
            None => kind
                .fill_in(values)
                .expect("a request that is valid with sample values is not valid with others"),
        };
        values.next_request();
        (index, NextRequest { head, body, expected: kind.expected.clone() })
    }

    pub(super) fn has_cookies(&self) -> bool {
        self.mix.entries().iter().any(|request| request.has_cookies)
    }

    /// Makes a client repeat requests of a session that were not answered.
    pub(super) fn repeat(&self, values: &mut FieldValues, requests: usize) {
        values.repeat(&self.mix, requests);
    }
}

impl RequestTemplate {
    fn new(
        http: &Http,
        scheme: &str,
        request: HttpRequest,
    ) -> Result<RequestTemplate, InvalidValue> {
        let authority = http.host_header(&request).unwrap_or(&http.authority).to_owned();
        // `OPTIONS *` refers to the whole server, and its URI has no path.
        let path = if request.path == "*" { "" } else { &request.path };
        let uri = format!("{scheme}://{authority}{path}");
        let data = http.data.as_deref();
        let parse = |text: &str| Template::parse_with_data(text, data);
        let uri = parse(&uri)?;
        let mut headers = Vec::new();
        let own = http.headers.iter().chain(&request.headers);
        for (name, value) in own.filter(|(name, _)| !is_host_header(name)) {
            if CONNECTION_HEADERS.iter().any(|other| name.eq_ignore_ascii_case(other)) {
                return Err(invalid(format!(
                    "the header {name} is not allowed in HTTP/2: leave it out"
                )));
            }
            if name.eq_ignore_ascii_case("te") && !value.trim().eq_ignore_ascii_case("trailers") {
                return Err(invalid(format!(
                    "the header te is '{value}', but in HTTP/2 it may only be 'trailers'"
                )));
            }
            headers.push((name.clone(), parse(value)?));
        }
        let HttpRequest { method, body, expected, .. } = request;
        let expected = expected.filter(|_| method != "HEAD").map(Rc::new);
        let has_cookies = http.cookies;
        // The head is checked before there is a body, which may be long.
        let mut kind = RequestTemplate {
            method,
            uri,
            headers,
            body: None,
            has_cookies,
            expected,
            constant: None,
        };
        let data = http.data.as_ref();
        FieldValues::check_each_row(data, kind.head().any(Template::uses_data), |values| {
            let mut uri = Vec::new();
            kind.uri.write(&mut values.clone(), &mut uri);
            kind.fill_in(values).map(drop).map_err(|_| invalid_uri(&uri))
        })?;
        kind.body = body;
        if kind.is_constant() {
            let filled_in = kind.fill_in(&mut FieldValues::new(0, 0, 1));
            kind.constant =
                Some(filled_in.expect("a head that was valid is not valid with a body"));
        }
        Ok(kind)
    }

    /// Returns the templates of the head.
    fn head(&self) -> impl Iterator<Item = &Template> {
        self.headers.iter().map(|(_, value)| value).chain([&self.uri])
    }

    fn is_constant(&self) -> bool {
        let mut templates = self.head().chain(&self.body);
        !self.has_cookies && templates.all(|template| template.as_constant().is_some())
    }

    /// Returns the request with its fields replaced.
    fn fill_in(
        &self,
        values: &mut FieldValues,
    ) -> Result<(Request<()>, Option<Bytes>), http::Error> {
        let mut write = |template: &Template| {
            let mut bytes = Vec::new();
            template.write(values, &mut bytes);
            bytes
        };
        let mut request = Request::builder().method(self.method.as_str()).uri(write(&self.uri));
        for (name, value) in &self.headers {
            request = request.header(name.as_str(), write(value));
        }
        let body = self.body.as_ref().map(&mut write);
        if let Some(uri) = request.uri_ref().filter(|_| self.has_cookies) {
            let cookies = values.cookies();
            cookies.set_encrypted(uri.scheme() == Some(&Scheme::HTTPS));
            let host = uri.authority().map_or("", |authority| authority.as_str());
            cookies.begin_request(host.as_bytes(), uri.path().as_bytes());
            let value = cookies.value();
            if !value.is_empty() {
                request = request.header("cookie", value);
            }
        }
        if let Some(body) = &body {
            request = request.header("content-length", body.len());
        }
        let body = body.filter(|body| !body.is_empty()).map(Bytes::from);
        Ok((request.body(())?, body))
    }
}

/// Explains why a request cannot be sent, although its parts are valid in HTTP/1: its host is not
/// one, or its path has characters that URIs do not have.
fn invalid_uri(uri: &[u8]) -> InvalidValue {
    let uri = String::from_utf8_lossy(uri);
    let rest = uri.split_once("://").map_or("", |(_, rest)| rest);
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    if host.parse::<Authority>().is_err() {
        return invalid_authority(host);
    }
    invalid(format!(
        "{path:?} is not a valid path in HTTP/2: write characters such as < and > as %3C and %3E, \
         and at most {MAX_URI_BYTES} bytes with the host"
    ))
}
