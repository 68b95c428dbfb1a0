//! Headers that a proxy changes.

use hyper::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, HOST, HeaderName, HeaderValue, PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING, UPGRADE, VIA,
};
use hyper::http::uri::Authority;
use hyper::{HeaderMap, Request, Version};
use std::net::IpAddr;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Headers that concern one connection (RFC 9110, 7.6.1), besides those that `Connection` lists.
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

/// The only protocol that is passed on. Another one, as `h2c`, would hide requests from the proxy.
const WEBSOCKET: &str = "websocket";

/// Removes what concerns the connection that the headers came over; returns whether they ask for an upgrade to WebSocket, or grant it.
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
    // The length of a body in chunks is not in it, and a client that believed it would cut the body there (RFC 9112, 6.3).
    if headers.contains_key(TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
    }
    for name in listed.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
    is_websocket
}

/// Returns true if a client takes trailers. It must be asked before hop-by-hop headers are removed.
pub(crate) fn takes_trailers(headers: &HeaderMap) -> bool {
    list(headers, TE).any(|coding| coding.eq_ignore_ascii_case("trailers"))
}

/// Asks the upstream for trailers, which the proxy passes on.
pub(crate) fn ask_for_trailers(headers: &mut HeaderMap) {
    headers.insert(CONNECTION, HeaderValue::from_static("te"));
    headers.insert(TE, HeaderValue::from_static("trailers"));
}

/// Returns true if a client waits for `100 Continue` before it sends the body.
pub(crate) fn expects_continue<B>(request: &Request<B>) -> bool {
    request.version() != Version::HTTP_10
        && list(request.headers(), EXPECT).any(|it| it.eq_ignore_ascii_case("100-continue"))
}

/// The elements of a header that is a list, in all its lines.
fn list(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &str> {
    let lines = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(str::trim)
}

/// Asks for an upgrade to WebSocket, or grants it.
pub(crate) fn set_upgrade(headers: &mut HeaderMap) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static(WEBSOCKET));
}

/// The one host that a request is for: that of its URI if it has one, as in HTTP/2, whatever the header says (RFC 9112, 3.2.2). `None` in
/// HTTP/1.0, which need not name one.
///
/// # Errors
/// If the header is missing in HTTP/1.1, is there twice, or is no host: servers behind the proxy might each take another one.
pub(crate) fn host_of<B>(request: &Request<B>) -> Result<Option<HeaderValue>, &'static str> {
    let mut lines = request.headers().get_all(HOST).iter();
    let (line, another) = (lines.next(), lines.next());
    if another.is_some() {
        return Err("more than one Host");
    }
    if line.is_none() && request.version() == Version::HTTP_11 {
        return Err("no Host");
    }
    let authority = match (request.uri().authority(), line) {
        (Some(authority), _) => authority.clone(),
        (None, Some(line)) => {
            Authority::try_from(line.as_bytes()).map_err(|_| "Host is no host with a port")?
        }
        (None, None) => return Ok(None),
    };
    if authority.as_str().contains('@') {
        return Err("a Host with user information");
    }
    HeaderValue::try_from(authority.as_str()).map(Some).map_err(|_| "Host is no host with a port")
}

/// Makes one line of the cookies, which come in several in HTTP/2 and may not in HTTP/1 (RFC 9113, 8.2.3).
pub(crate) fn join_cookies(headers: &mut HeaderMap) {
    let lines: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if lines.len() > 1 {
        let joined = HeaderValue::from_bytes(&lines.join(&b"; "[..])).expect("of header values");
        headers.insert(COOKIE, joined);
    }
}

/// Adds the name of this proxy, and the version of HTTP in which it has received the message (RFC 9110, 7.6.3).
pub(crate) fn add_via(headers: &mut HeaderMap, version: Version, name: &str) {
    let version = match version {
        Version::HTTP_2 => "2",
        Version::HTTP_10 => "1.0",
        _ => "1.1",
    };
    let via = HeaderValue::try_from(format!("{version} {name}")).expect("a version and a name");
    headers.append(VIA, via);
}

/// Returns true if a message has come through the proxy of this name before.
pub(crate) fn is_loop(headers: &HeaderMap, name: &str) -> bool {
    list(headers, VIA).any(|hop| hop.split_whitespace().nth(1) == Some(name))
}

/// Adds the client's address to those that the request names already.
pub(crate) fn add_forwarded_for(headers: &mut HeaderMap, client: IpAddr) {
    let before = headers.get_all(FORWARDED_FOR).iter().filter_map(|value| value.to_str().ok());
    let mut all: Vec<String> = before.map(str::to_owned).collect();
    all.push(client.to_string());
    let value = HeaderValue::try_from(all.join(", ")).expect("text and an address");
    headers.insert(FORWARDED_FOR, value);
}
