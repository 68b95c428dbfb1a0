//! The cookies of one client, kept and sent as a browser does (RFC 6265 and its revision,
//! draft-ietf-httpbis-rfc6265bis).

use crate::clock;
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use std::net::IpAddr;
use std::time::Duration;

/// The number of cookies that a client keeps, as in Chromium. A new cookie replaces the oldest one.
const MAX_COOKIES: usize = 180;
/// A cookie is ignored if its name and value together are longer.
const MAX_COOKIE_BYTES: usize = 4096;

/// The cookies that the server has set on a client, and the request that is in flight. A cookie is
/// sent with a request if its path, domain, `Secure` and lifetime allow it.
///
/// A `Secure` cookie is sent over TLS, or to this machine (`localhost` and loopback addresses),
/// which browsers trust without TLS.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cookies {
    /// In the order in which they were first set.
    all: Vec<Cookie>,
    is_encrypted: bool,
    /// The host of the latest request in lower case, without its port.
    host: String,
    /// The path of the latest request, without its query.
    path: Vec<u8>,
}

#[derive(Clone, Debug, Default)]
struct Cookie {
    name: Vec<u8>,
    value: Vec<u8>,
    domain: String,
    /// Whether only `domain` itself gets the cookie, and not the hosts below it.
    is_host_only: bool,
    path: Vec<u8>,
    is_secure: bool,
    /// Time of expiry since the Unix epoch; `None` for a cookie that lasts until the session ends.
    expires: Option<Duration>,
}

impl Cookies {
    pub(crate) fn set_encrypted(&mut self, is_encrypted: bool) {
        self.is_encrypted = is_encrypted;
    }

    /// Remembers the host and path of the next request. The host may have a port, and the path a
    /// query. Cookies that the reply sets belong to this host and path.
    pub(crate) fn begin_request(&mut self, host: &[u8], path: &[u8]) {
        self.host = String::from_utf8_lossy(without_port(host)).to_ascii_lowercase();
        let end = path.iter().position(|byte| *byte == b'?').unwrap_or(path.len());
        self.path.clear();
        self.path.extend_from_slice(&path[..end]);
    }

    /// Applies the value of a `Set-Cookie` header of the reply to the latest request: sets a
    /// cookie, or removes it if it has expired. Ignores a malformed value, as browsers do.
    pub(crate) fn set(&mut self, header: &[u8]) {
        let Some(cookie) = self.parse(header) else { return };
        let is_same = |known: &Cookie| {
            (&known.name, &known.domain, &known.path)
                == (&cookie.name, &cookie.domain, &cookie.path)
        };
        let place = self.all.iter().position(is_same);
        match place {
            Some(place) if cookie.has_expired() => _ = self.all.remove(place),
            Some(place) => self.all[place] = cookie,
            None if cookie.has_expired() => {}
            None => {
                if self.all.len() == MAX_COOKIES {
                    self.all.remove(0);
                }
                self.all.push(cookie);
            }
        }
    }

    pub(crate) fn clear(&mut self) {
        self.all.clear();
    }

    /// Appends the `Cookie` header to the head of a request, which begins at `start`, if there are
    /// cookies for it.
    pub(crate) fn write_header(&mut self, start: usize, out: &mut Vec<u8>) {
        let (host, path) = host_and_path(&out[start..]);
        self.begin_request(host, path);
        let value = self.value();
        if !value.is_empty() {
            [b"Cookie: ", &value[..], b"\r\n"].iter().for_each(|part| out.extend_from_slice(part));
        }
    }

    /// Returns the value of the `Cookie` header for the latest request: empty if there are no
    /// cookies for it. Cookies with longer paths come first.
    pub(crate) fn value(&self) -> Vec<u8> {
        let mut found: Vec<_> = self.all.iter().filter(|cookie| self.belongs(cookie)).collect();
        found.sort_by_key(|cookie| std::cmp::Reverse(cookie.path.len()));
        let pairs: Vec<_> =
            found.iter().map(|cookie| [&cookie.name[..], b"=", &cookie.value].concat()).collect();
        pairs.join(&b"; "[..])
    }

    /// Returns true if the latest request gets this cookie.
    fn belongs(&self, cookie: &Cookie) -> bool {
        let is_host = match cookie.is_host_only {
            true => self.host == cookie.domain,
            false => is_within(&self.host, &cookie.domain),
        };
        let rest = self.path.strip_prefix(&cookie.path[..]);
        let is_path = rest.is_some_and(|rest| {
            rest.is_empty() || cookie.path.ends_with(b"/") || rest.starts_with(b"/")
        });
        is_host && is_path && (!cookie.is_secure || self.is_trusted()) && !cookie.has_expired()
    }

    /// Returns true if the latest request may carry `Secure` cookies.
    fn is_trusted(&self) -> bool {
        let host = self.host.trim_start_matches('[').trim_end_matches(']');
        let is_local = match host.parse::<IpAddr>() {
            Ok(address) => address.is_loopback(),
            Err(_) => is_within(host, "localhost"),
        };
        self.is_encrypted || is_local
    }

    /// Parses a header. Returns `None` for a cookie that a browser would refuse.
    fn parse(&self, header: &[u8]) -> Option<Cookie> {
        let mut parts = header.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        let (name, value) = parts.next().and_then(split)?;
        if name.is_empty() || name.len() + value.len() > MAX_COOKIE_BYTES {
            return None;
        }
        let mut cookie = Cookie {
            name: name.to_vec(),
            value: value.to_vec(),
            domain: self.host.clone(),
            is_host_only: true,
            path: self.default_path().to_vec(),
            ..Cookie::default()
        };
        let (mut max_age, mut expires) = (None, None);
        for attribute in parts {
            let (name, value) = split(attribute).unwrap_or((attribute, b""));
            let text = std::str::from_utf8(value).unwrap_or_default();
            match &*name.to_ascii_lowercase() {
                b"secure" => cookie.is_secure = true,
                b"path" if value.starts_with(b"/") => cookie.path = value.to_vec(),
                b"path" => cookie.path = self.default_path().to_vec(),
                b"domain" if !value.is_empty() => {
                    cookie.domain = text.strip_prefix('.').unwrap_or(text).to_ascii_lowercase();
                    cookie.is_host_only = false;
                }
                b"max-age" => max_age = text.parse::<i64>().ok(),
                b"expires" => expires = parse_date(text),
                _ => {}
            }
        }
        // `Max-Age` has precedence over `Expires`.
        cookie.expires = match max_age {
            Some(seconds) => {
                let seconds = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
                Some(if seconds.is_zero() {
                    seconds
                } else {
                    clock::unix().saturating_add(seconds)
                })
            }
            None => expires,
        };
        let is_whole_host = cookie.is_host_only && cookie.path == b"/";
        let is_allowed = match name.to_ascii_lowercase() {
            name if name.starts_with(b"__host-") => cookie.is_secure && is_whole_host,
            name if name.starts_with(b"__secure-") => cookie.is_secure,
            _ => true,
        };
        let is_own = is_within(&self.host, &cookie.domain);
        (is_allowed && is_own && (!cookie.is_secure || self.is_trusted())).then_some(cookie)
    }

    /// Returns the path of a cookie that has no `Path` attribute: the directory of the latest
    /// request.
    fn default_path(&self) -> &[u8] {
        match self.path.iter().rposition(|byte| *byte == b'/') {
            Some(last @ 1..) if self.path.starts_with(b"/") => &self.path[..last],
            _ => b"/",
        }
    }
}

impl Cookie {
    fn has_expired(&self) -> bool {
        self.expires.is_some_and(|expires| expires <= clock::unix())
    }
}

/// Splits at the first `=`.
fn split(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let place = text.iter().position(|byte| *byte == b'=')?;
    Some((text[..place].trim_ascii(), text[place + 1..].trim_ascii()))
}

fn without_port(host: &[u8]) -> &[u8] {
    let colon = host.iter().rposition(|byte| *byte == b':');
    let is_port = |colon: &usize| host[colon + 1..].iter().all(u8::is_ascii_digit);
    colon.filter(is_port).map_or(host, |colon| &host[..colon])
}

/// Returns true if the host is the domain or a subdomain of it. An IP address is not a subdomain.
fn is_within(host: &str, domain: &str) -> bool {
    let is_below = |host: &str| host.strip_suffix(domain).is_some_and(|start| start.ends_with('.'));
    host == domain || (is_below(host) && host.parse::<IpAddr>().is_err())
}

/// Returns the value of the `Host` header and the path in the head of a request. A missing one is
/// empty.
fn host_and_path(head: &[u8]) -> (&[u8], &[u8]) {
    let mut lines = head.split(|byte| *byte == b'\n');
    let first = lines.next().unwrap_or_default();
    let path = first.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
    let host = lines.find_map(|line| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let (name, value) = line.split_at(colon);
        name.eq_ignore_ascii_case(b"host").then(|| value[1..].trim_ascii())
    });
    (host.unwrap_or_default(), path)
}

/// Parses a date such as `Thu, 01 Jan 1970 00:00:01 GMT`, also with hyphens, two digits of the year,
/// or any day of the week. A date before the Unix epoch is the epoch.
fn parse_date(text: &str) -> Option<Duration> {
    let date = text.split_once(',').map_or(text, |(_weekday, date)| date).replace('-', " ");
    let date = rfc2822::DateTimeParser::new().parse_timestamp(date.trim()).ok()?;
    Some(Duration::try_from(date.duration_since(Timestamp::UNIX_EPOCH)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client that has sent a request to this host for this path.
    fn client(host: &str, path: &str, is_encrypted: bool) -> Cookies {
        let mut cookies = Cookies::default();
        cookies.set_encrypted(is_encrypted);
        cookies.begin_request(host.as_bytes(), path.as_bytes());
        cookies
    }

    fn value(cookies: &Cookies) -> String {
        String::from_utf8(cookies.value()).unwrap()
    }

    #[test]
    fn cookies_are_set_replaced_and_removed() {
        let mut cookies = client("a.example:80", "/", true);
        let mut after = |header: &str| {
            cookies.set(header.as_bytes());
            value(&cookies)
        };
        assert_eq!(after("id=1; Path=/; HttpOnly"), "id=1");
        assert_eq!(after(" user = ann=x ;Secure"), "id=1; user=ann=x");
        let replaced = after("id=2; Max-Age=60; Expires=Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(replaced, "id=2; user=ann=x");
        assert_eq!(after("nothing"), "id=2; user=ann=x");
        assert_eq!(after("=x"), "id=2; user=ann=x");
        assert_eq!(after("user=; expires=Thu, 01-Jan-1970 00:00:00 GMT"), "id=2");
        assert_eq!(after("id=3; Expires=Fri, 01 Jan 2100 00:00:00 GMT"), "id=3");
        assert_eq!(after("id=4; Expires=soon"), "id=4");
        assert_eq!(after("id=5; Max-Age=99999999999999"), "id=5");
        assert_eq!(after("id=; max-age=0"), "");
    }

    #[test]
    fn dates_are_read_in_the_forms_that_servers_write() {
        let seconds = |text: &str| parse_date(text).map(|since| since.as_secs());
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06-Nov-1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun, 06-Nov-94 08:49:37 GMT",
            "Mon, 06 Nov 1994 08:49:37 GMT",
        ] {
            assert_eq!(seconds(text), Some(784_111_777), "{text}");
        }
        assert_eq!(seconds("Thu, 01-Jan-70 00:00:01 GMT"), Some(1));
        assert_eq!(seconds("Mon, 01 Jan 1601 00:00:00 GMT"), Some(0));
        for text in ["", "soon", "0", "06 Nov 1994", "Nov 1994 08:49:37", "31 Feb 2030 08:49:37"] {
            assert_eq!(seconds(text), None, "{text}");
        }
        let mut cookies = client("h", "/", false);
        cookies.set(b"id=1");
        cookies.set(b"id=; expires=Thu, 01-Jan-70 00:00:01 GMT");
        assert_eq!(value(&cookies), "");
    }

    #[test]
    fn path_decides_which_requests_get_a_cookie() {
        for (request, attribute, with, without) in [
            (
                "/shop/cart",
                "",
                &["/shop", "/shop/", "/shop/x?y"][..],
                &["/", "/shopping", "/x"][..],
            ),
            ("/shop/cart?a=/b/c", "", &["/shop/x"], &["/"]),
            ("/login", "", &["/", "/x/y"], &[]),
            ("/login", "; Path=/api", &["/api", "/api/x"], &["/login", "/apis"]),
            ("/login", "; path=/api/", &["/api/", "/api/x"], &["/api"]),
            ("/a/b", "; Path=api", &["/a/c"], &["/api"]),
            ("*", "", &["/"], &[]),
        ] {
            let mut cookies = client("h", request, false);
            cookies.set(format!("a=1{attribute}").as_bytes());
            for (paths, expected) in [(with, "a=1"), (without, "")] {
                for path in paths {
                    cookies.begin_request(b"h", path.as_bytes());
                    assert_eq!(value(&cookies), expected, "{request}{attribute} at {path}");
                }
            }
        }
        let mut cookies = client("h", "/a/b/c", false);
        ["short=1; Path=/", "long=2; Path=/a/b", "short=3; Path=/a"].iter().for_each(|header| {
            cookies.set(header.as_bytes());
        });
        assert_eq!(value(&cookies), "long=2; short=3; short=1");
    }

    #[test]
    fn domain_decides_which_hosts_get_a_cookie() {
        for (host, attribute, with, without) in [
            (
                "a.example",
                "",
                &["a.example", "A.Example:8080"][..],
                &["b.a.example", "example"][..],
            ),
            ("a.example", "; Domain=.Example", &["a.example", "b.example"], &["badexample"]),
            ("a.example", "; Domain=", &["a.example"], &["b.a.example"]),
            // A server cannot set cookies for a domain that it does not belong to.
            ("a.example", "; Domain=b.example", &[], &["a.example", "b.example"]),
            ("10.0.0.1", "; Domain=0.0.1", &[], &["10.0.0.1"]),
            ("[::1]:80", "", &["[::1]:81", "[::1]"], &["[::2]"]),
        ] {
            let mut cookies = client(host, "/", false);
            cookies.set(format!("a=1{attribute}").as_bytes());
            for (hosts, expected) in [(with, "a=1"), (without, "")] {
                for other in hosts {
                    cookies.begin_request(other.as_bytes(), b"/");
                    assert_eq!(value(&cookies), expected, "{host}{attribute} at {other}");
                }
            }
        }
    }

    #[test]
    fn secure_cookies_need_tls_or_this_machine() {
        for (host, is_encrypted, expected) in [
            ("a.example", true, "a=1"),
            ("a.example", false, ""),
            ("127.0.0.1:8080", false, "a=1"),
            ("[::1]:8080", false, "a=1"),
            ("x.localhost", false, "a=1"),
            ("10.0.0.1", false, ""),
        ] {
            let mut cookies = client(host, "/", is_encrypted);
            cookies.set(b"a=1; Secure");
            assert_eq!(value(&cookies), expected, "{host} {is_encrypted}");
        }
        let mut cookies = client("a.example", "/x/y", true);
        for refused in
            ["__Secure-a=1", "__Host-a=1; Secure", "__host-a=1; Secure; Path=/; Domain=a.example"]
        {
            cookies.set(refused.as_bytes());
            assert_eq!(value(&cookies), "", "{refused}");
        }
        cookies.set(b"__Host-a=1; Secure; Path=/");
        assert_eq!(value(&cookies), "__Host-a=1");
    }

    #[test]
    fn number_and_length_of_cookies_are_bounded() {
        let mut cookies = client("h", "/", false);
        for number in 0..=MAX_COOKIES {
            cookies.set(format!("c{number}=").as_bytes());
        }
        let all = value(&cookies);
        assert!(all.starts_with("c1=; c2=") && all.split("; ").count() == MAX_COOKIES, "{all}");
        cookies.set(&[b"c1=", &[b'x'; MAX_COOKIE_BYTES][..]].concat());
        assert_eq!(value(&cookies), all);
    }

    #[test]
    fn header_follows_from_the_head_that_was_written() {
        let mut cookies = client("a.example", "/x/", false);
        cookies.set(b"a=b");
        let head = b"GET /x/y?z HTTP/1.1\r\nAccept: a:b\r\nhost: a.example:8080\r\n";
        let mut out = [b"before", &head[..]].concat();
        cookies.write_header(b"before".len(), &mut out);
        assert_eq!(out, [b"before", &head[..], b"Cookie: a=b\r\n"].concat());
        let mut out = b"GET /y HTTP/1.1\r\nHost: a.example\r\n".to_vec();
        cookies.write_header(0, &mut out);
        assert!(out.ends_with(b"Host: a.example\r\n"));
    }
}
