//! Headers that a proxy changes.

use hyper::HeaderMap;
use hyper::header::{
    CONNECTION, HeaderName, HeaderValue, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};
use std::net::IpAddr;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Those that concern one connection (RFC 9110, 7.6.1), besides what `Connection` lists.
const HOP_BY_HOP: [HeaderName; 9] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Removes what concerns the connection that the headers came over; returns the protocol that it asks to be upgraded to, or was.
pub(crate) fn remove_hop_by_hop(headers: &mut HeaderMap) -> Option<HeaderValue> {
    let listed: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    let upgrade = headers.get(UPGRADE).filter(|_| listed.contains(&UPGRADE)).cloned();
    for name in listed.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
    upgrade
}

/// Asks for an upgrade, or grants it.
pub(crate) fn set_upgrade(headers: &mut HeaderMap, protocol: HeaderValue) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, protocol);
}

/// Tells the upstream for which client a request is, behind those that are told already.
pub(crate) fn add_forwarded_for(headers: &mut HeaderMap, client: IpAddr) {
    let before = headers.get_all(FORWARDED_FOR).iter().filter_map(|value| value.to_str().ok());
    let mut all: Vec<String> = before.map(str::to_owned).collect();
    all.push(client.to_string());
    let value = HeaderValue::try_from(all.join(", ")).expect("text and an address");
    headers.insert(FORWARDED_FOR, value);
}
