//! Headers that a proxy changes.

use hyper::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, HOST, HeaderName, HeaderValue, PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING, UPGRADE, VIA,
};
use hyper::http::uri::Authority;
use hyper::{HeaderMap, Request, Version};
use std::net::IpAddr;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Headers that concern a single connection (RFC 9110, 7.6.1), in addition to those listed in
/// `Connection`.
const HOP_BY_HOP: [HeaderName; 8] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// The only upgrade protocol that is forwarded. Others, such as `h2c`, would hide requests from the
/// proxy.
const WEBSOCKET: &str = "websocket";

/// Removes the headers that concern only the connection they arrived on. Returns true if they
/// request or accept an upgrade to WebSocket.
pub(crate) fn remove_hop_by_hop(headers: &mut HeaderMap) -> bool {
    let listed: Vec<HeaderName> =
        list(headers, CONNECTION).filter_map(|name| name.parse().ok()).collect();
    let is_websocket = {
        let mut protocols = headers.get_all(UPGRADE).iter();
        let first = protocols
            .next()
            .is_some_and(|one| one.as_bytes().eq_ignore_ascii_case(WEBSOCKET.as_bytes()));
        first && protocols.next().is_none() && listed.contains(&UPGRADE)
    };
    // `Content-Length` is not the length of a chunked body; a client that trusted it would truncate
    // the body (RFC 9112, 6.3).
    if headers.contains_key(TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
    }
    for name in listed.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
    is_websocket
}

/// Returns true if a client accepts trailers. Must be called before hop-by-hop headers are removed.
pub(crate) fn takes_trailers(headers: &HeaderMap) -> bool {
    list(headers, TE).any(|coding| coding.eq_ignore_ascii_case("trailers"))
}

/// Asks the upstream for trailers, which the proxy forwards.
pub(crate) fn ask_for_trailers(headers: &mut HeaderMap) {
    headers.insert(CONNECTION, HeaderValue::from_static("te"));
    headers.insert(TE, HeaderValue::from_static("trailers"));
}

/// Returns true if a client waits for `100 Continue` before it sends the body.
pub(crate) fn expects_continue<B>(request: &Request<B>) -> bool {
    request.version() != Version::HTTP_10
        && list(request.headers(), EXPECT).any(|it| it.eq_ignore_ascii_case("100-continue"))
}

/// Returns the elements of a list header, from all its lines.
fn list(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &str> {
    let lines = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(str::trim)
}

/// Makes a message request or accept an upgrade to WebSocket.
pub(crate) fn set_upgrade(headers: &mut HeaderMap) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static(WEBSOCKET));
}

/// Returns the host of a request. A host in the URI, as in HTTP/2, takes precedence over the header
/// (RFC 9112, 3.2.2). Returns `None` if there is no host and the request is not HTTP/1.1.
///
/// # Errors
/// Fails if the header is missing in HTTP/1.1, occurs twice, or is not a valid host, because
/// servers behind the proxy might each choose a different one.
pub(crate) fn host_of<B>(request: &Request<B>) -> Result<Option<HeaderValue>, &'static str> {
    let mut lines = request.headers().get_all(HOST).iter();
    let (line, another) = (lines.next(), lines.next());
    if another.is_some() {
        return Err("more than one Host header");
    }
    if line.is_none() && request.version() == Version::HTTP_11 {
        return Err("no Host header");
    }
    let authority = match (request.uri().authority(), line) {
        (Some(authority), _) => authority.clone(),
        (None, Some(line)) => {
            Authority::try_from(line.as_bytes()).map_err(|_| "invalid Host header")?
        }
        (None, None) => return Ok(None),
    };
    if authority.as_str().contains('@') {
        return Err("the Host header contains user information");
    }
    HeaderValue::try_from(authority.as_str()).map(Some).map_err(|_| "invalid Host header")
}

/// Joins the cookies into one line: HTTP/2 allows several lines, HTTP/1 only one (RFC 9113, 8.2.3).
pub(crate) fn join_cookies(headers: &mut HeaderMap) {
    let lines: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if lines.len() > 1 {
        let joined = HeaderValue::from_bytes(&lines.join(&b"; "[..]))
            .expect("the joined header values are not a valid value");
        headers.insert(COOKIE, joined);
    }
}

/// Adds this proxy's name and the HTTP version in which it received the message to `Via` (RFC 9110,
/// 7.6.3).
pub(crate) fn add_via(headers: &mut HeaderMap, version: Version, name: &str) {
    let version = match version {
        Version::HTTP_2 => "2",
        Version::HTTP_10 => "1.0",
        _ => "1.1",
    };
    let via = HeaderValue::try_from(format!("{version} {name}"))
        .expect("the version and the name are not a valid value");
    headers.append(VIA, via);
}

/// Returns true if a message has already passed through the proxy with this name.
pub(crate) fn is_loop(headers: &HeaderMap, name: &str) -> bool {
    list(headers, VIA).any(|hop| hop.split_whitespace().nth(1) == Some(name))
}

/// Appends the client's address to the request's `X-Forwarded-For`.
pub(crate) fn add_forwarded_for(headers: &mut HeaderMap, client: IpAddr) {
    let before = headers.get_all(FORWARDED_FOR).iter().filter_map(|value| value.to_str().ok());
    let mut all: Vec<String> = before.map(str::to_owned).collect();
    all.push(client.to_string());
    let value = HeaderValue::try_from(all.join(", "))
        .expect("the text and the address are not a valid value");
    headers.insert(FORWARDED_FOR, value);
}
