//! The HTTP/1 requests of a run.

use super::head::LastHead;
use crate::exchange::http2;
use crate::expected::Expected;
use crate::invalid::{InvalidValue, invalid};
use crate::mix::{DataRows, FieldValues, Mix, Template};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// HTTP requests. Paths, bodies and the values of headers are [`Template`]s.
///
/// ```
/// use annulus_load::{Http, HttpRequest, Mix};
///
/// let mut http = Http::new("127.0.0.1:8080", "/index.html");
/// http.headers.push(("x-request".into(), "{n}".into()));
/// assert_eq!(http.validate(), Ok(()));
///
/// // Three times as many reads as writes.
/// let read = HttpRequest::new("GET", "/items/{random 1 9}");
/// let body = Some("{hex 8}".parse().unwrap());
/// let write = HttpRequest { body, ..HttpRequest::new("POST", "/items") };
/// http.requests = Mix::new([(3.0, read), (1.0, write)]).unwrap();
/// assert_eq!(http.validate(), Ok(()));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Http {
    /// The value of the `Host` header or of `:authority`: the host, and the port unless it is the
    /// scheme's default.
    pub authority: String,
    /// Additional headers. One called `Host` replaces the authority.
    pub headers: Vec<(String, String)>,
    /// The requests. Each client draws its next one at random, or sends them in order as a session.
    pub requests: Mix<HttpRequest>,
    /// Rows of values. A field with the name of a column is replaced with the column's value.
    pub data: Option<Arc<DataRows>>,
    /// Whether each client keeps the cookies that the server sets, and sends them as a browser
    /// does, with the requests that their path, domain, lifetime and `Secure` allow. Each session
    /// of requests in order begins without cookies. Only one request may be in flight per
    /// connection.
    pub cookies: bool,
}

/// One kind of request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpRequest {
    /// The method, such as `GET`.
    pub method: String,
    /// The path, with a query if there is one.
    pub path: String,
    /// Headers of this request, which follow the headers of all requests.
    pub headers: Vec<(String, String)>,
    /// The body. Its `Content-Length` header is added automatically.
    pub body: Option<Template>,
    /// The expected body of a reply with a status below 400. Other bodies count as errors.
    pub expected: Option<Expected>,
}

impl HttpRequest {
    /// Creates a request without a body.
    pub fn new(method: impl Into<String>, path: impl Into<String>) -> HttpRequest {
        HttpRequest {
            method: method.into(),
            path: path.into(),
            headers: Vec::new(),
            body: None,
            expected: None,
        }
    }

    /// Returns the name of the request in results.
    pub(crate) fn name(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    /// Checks the request. Its templates may use the columns of `data`.
    pub(crate) fn validate(&self, data: Option<&Arc<DataRows>>) -> Result<(), InvalidValue> {
        self.headers.iter().try_for_each(|(name, value)| check_header(name, value, data))?;
        if self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("connection")) {
            return Err(invalid(
                "a single request has the header Connection: give it for all requests, or leave \
                 it out",
            ));
        }
        if !is_token(&self.method) || self.method == "CONNECT" {
            return Err(invalid(format!(
                "'{}' is not a method that has a path: write one word, such as GET",
                self.method
            )));
        }
        let is_whole_server = self.path == "*" && self.method == "OPTIONS";
        check_values(&self.path, data, |path| {
            let is_graphic = path.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'#');
            match is_whole_server || (path.starts_with(b"/") && is_graphic) {
                true => Ok(()),
                false => Err(invalid(format!(
                    "{:?} is not a valid path: start with /, and write spaces, # and non-ASCII \
                     bytes as %20, %23 and so on",
                    String::from_utf8_lossy(path)
                ))),
            }
        })
    }
}

impl Http {
    /// Creates `GET` requests for a path.
    pub fn new(authority: impl Into<String>, path: impl Into<String>) -> Http {
        let request = HttpRequest::new("GET", path);
        let requests = Mix::new([(1.0, request)]).expect("the constant weight is invalid");
        let (authority, headers) = (authority.into(), Vec::new());
        Http { authority, headers, requests, data: None, cookies: false }
    }

    /// Checks that each part is valid HTTP, and that no header is one that this crate derives from
    /// the body or from the cookies.
    ///
    /// # Errors
    /// Fails for the first invalid part.
    pub fn validate(&self) -> Result<(), InvalidValue> {
        let authority = &self.authority;
        if authority.is_empty() || !authority.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(invalid_authority(authority));
        }
        let data = self.data.as_ref();
        self.headers.iter().try_for_each(|(name, value)| check_header(name, value, data))?;
        let requests = self.requests.entries();
        requests.iter().try_for_each(|request| request.validate(data))?;
        let is_cookie = |(name, _): &(String, String)| name.eq_ignore_ascii_case("cookie");
        let mut all = self.headers.iter().chain(requests.iter().flat_map(|one| &one.headers));
        if self.cookies && all.any(is_cookie) {
            return Err(invalid(
                "the cookies that the server sets replace the header Cookie: leave one of them out",
            ));
        }
        Ok(())
    }

    /// Like [`validate`](Self::validate), but for HTTP/2.
    ///
    /// # Errors
    /// Fails like `validate`, and for headers that HTTP/2 does not allow.
    pub fn validate_http2(&self) -> Result<(), InvalidValue> {
        http2::Requests::new(self, false).map(drop)
    }

    /// Returns true if a header says that the client sends nothing more on the connection after the
    /// request (RFC 9112, 9.6).
    pub(crate) fn closes_connection(&self) -> bool {
        let values =
            self.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("connection"));
        let mut options = values.flat_map(|(_, value)| value.split(','));
        options.any(|option| option.trim().eq_ignore_ascii_case("close"))
    }

    /// Returns the user's `Host` header for a request, if there is one.
    pub(crate) fn host_header<'a>(&'a self, request: &'a HttpRequest) -> Option<&'a str> {
        let mut headers = request.headers.iter().chain(&self.headers);
        headers.find(|(name, _)| is_host_header(name)).map(|(_, value)| value.as_str())
    }
}

pub(crate) fn is_host_header(name: &str) -> bool {
    name.eq_ignore_ascii_case("host")
}

/// Checks a possible value of a template, or if it uses the data, a value for each row.
fn check_values(
    text: &str,
    data: Option<&Arc<DataRows>>,
    check: impl Fn(&[u8]) -> Result<(), InvalidValue>,
) -> Result<(), InvalidValue> {
    let template = Template::parse_with_data(text, data.map(|data| &**data))?;
    let mut written = Vec::new();
    FieldValues::check_each_row(data, template.uses_data(), |values| {
        written.clear();
        template.write(values, &mut written);
        check(&written)
    })
}

/// Headers that are derived from the body.
const BODY_HEADERS: [&str; 2] = ["content-length", "transfer-encoding"];

/// Methods for which servers expect a content length even without a body.
const METHODS_WITH_BODY: [&str; 3] = ["POST", "PUT", "PATCH"];

pub(crate) fn invalid_authority(authority: &str) -> InvalidValue {
    invalid(format!(
        "{authority:?} is not a valid host: write HOST or HOST:PORT, such as 127.0.0.1:8080"
    ))
}

fn check_header(name: &str, value: &str, data: Option<&Arc<DataRows>>) -> Result<(), InvalidValue> {
    if !is_token(name) {
        let text = format!("{name:?} is not a valid header name: write 'NAME: VALUE'");
        return Err(invalid(text));
    }
    check_values(value, data, |value| {
        match value.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t') {
            true => Err(invalid(format!(
                "the header {name} has a control character in {:?}: remove it",
                String::from_utf8_lossy(value)
            ))),
            false => Ok(()),
        }
    })?;
    match BODY_HEADERS.iter().any(|own| name.eq_ignore_ascii_case(own)) {
        true => Err(invalid(format!("the header {name} is derived from the body: leave it out"))),
        false => Ok(()),
    }
}

/// Returns true if the text is an HTTP token, such as a method or the name of a header.
fn is_token(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(is_part)
}

/// The encoded requests of a run, which all clients of a thread share.
#[derive(Debug)]
pub(crate) struct Requests {
    mix: Mix<EncodedRequest>,
    /// Whether all requests have the method HEAD; `None` if only some have it.
    is_head: Option<bool>,
    /// Whether handling a reply depends on which kind of request it answers.
    has_kinds: bool,
    has_cookies: bool,
    /// Whether requests are sent over TLS.
    is_encrypted: bool,
    /// The request, if all are the same.
    constant: Option<Rc<[u8]>>,
    /// The last head that any client of the thread received.
    last_head: RefCell<LastHead>,
}

#[derive(Debug)]
struct EncodedRequest {
    /// The head up to the content length if the body has fields; otherwise the whole request.
    head: Template,
    /// The body, if it has fields.
    body: Option<Template>,
    is_head: bool,
    expected: Option<Expected>,
}

impl Requests {
    /// # Errors
    /// Fails like [`Http::validate`].
    pub(crate) fn new(http: &Http, is_encrypted: bool) -> Result<Requests, InvalidValue> {
        http.validate()?;
        let mix = http.requests.clone().try_map(|request| encode(http, request))?;
        let mut heads = mix.entries().iter().map(|request| request.is_head);
        let first = heads.next().unwrap_or(false);
        let is_head = heads.all(|head| head == first).then_some(first);
        let constant = match mix.entries() {
            [EncodedRequest { head, body: None, .. }] => head.as_constant().map(Rc::from),
            _ => None,
        };
        let is_checked = mix.entries().iter().any(|request| request.expected.is_some());
        let has_kinds = is_head.is_none() || (is_checked && mix.entries().len() > 1);
        let (has_cookies, last_head) = (http.cookies, RefCell::default());
        Ok(Requests { mix, is_head, has_kinds, has_cookies, is_encrypted, constant, last_head })
    }

    pub(super) fn are_encrypted(&self) -> bool {
        self.is_encrypted
    }

    pub(super) fn has_cookies(&self) -> bool {
        self.has_cookies
    }

    pub(super) fn has_kinds(&self) -> bool {
        self.has_kinds
    }

    /// Returns the expected body of the reply to a kind of request, or `None` if the body is not
    /// checked.
    #[inline]
    pub(super) fn expected(&self, kind: usize) -> Option<&Expected> {
        let request = &self.mix.entries()[kind];
        request.expected.as_ref().filter(|_| !request.is_head)
    }

    /// Makes a client repeat requests of a session that were not answered.
    pub(super) fn repeat(&self, values: &mut FieldValues, requests: usize) {
        values.repeat(&self.mix, requests);
    }

    #[inline]
    pub(super) fn constant(&self) -> Option<&Rc<[u8]>> {
        self.constant.as_ref()
    }

    pub(super) fn last_head(&self) -> &RefCell<LastHead> {
        &self.last_head
    }

    /// Appends the next request of a client. Returns its index in the mix.
    pub(super) fn write(&self, values: &mut FieldValues, out: &mut Vec<u8>) -> usize {
        let index = values.draw(&self.mix);
        let EncodedRequest { head, body, .. } = &self.mix.entries()[index];
        head.write(values, out);
        if let Some(body) = body {
            let mut bytes = Vec::new();
            body.write(values, &mut bytes);
            out.extend(format!("Content-Length: {}\r\n\r\n", bytes.len()).bytes());
            out.extend(bytes);
        }
        values.next_request();
        index
    }

    pub(super) fn is_head(&self) -> Option<bool> {
        self.is_head
    }

    pub(super) fn is_head_of(&self, index: usize) -> bool {
        self.mix.entries()[index].is_head
    }
}

fn encode(http: &Http, request: HttpRequest) -> Result<EncodedRequest, InvalidValue> {
    let host = http.host_header(&request).is_none().then_some(&http.authority);
    let HttpRequest { method, path, headers, body, expected } = request;
    let mut head = format!("{method} {path} HTTP/1.1\r\n");
    let mut add = |name: &str, value: &str| head.push_str(&[name, ": ", value, "\r\n"].concat());
    host.into_iter().for_each(|host| add("Host", host));
    let has_own_host = headers.iter().any(|(name, _)| is_host_header(name));
    let common = http.headers.iter().filter(|(name, _)| !has_own_host || !is_host_header(name));
    common.chain(&headers).for_each(|(name, value)| add(name, value));
    let mut head = Template::parse_with_data(&head, http.data.as_deref())?;
    if http.cookies {
        head.append_cookies();
    }
    let needs_body = METHODS_WITH_BODY.contains(&&*method);
    let constant = body.as_ref().map_or(Some(&[][..]), Template::as_constant).map(<[u8]>::to_vec);
    let is_head = method == "HEAD";
    let Some(constant) = constant else {
        return Ok(EncodedRequest { head, body, is_head, expected });
    };
    if body.is_some() || needs_body {
        head.append(format!("Content-Length: {}\r\n", constant.len()).as_bytes());
    }
    head.append(b"\r\n");
    head.append(&constant);
    Ok(EncodedRequest { head, body: None, is_head, expected })
}
