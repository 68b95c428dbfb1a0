//! The cookies of one client.

use crate::clock;
use std::time::UNIX_EPOCH;

/// The cookies that the server has set on a client, which sends them with each request whatever
/// their path and domain.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cookies(Vec<(Vec<u8>, Vec<u8>)>);

impl Cookies {
    /// Applies the value of a `Set-Cookie` header: sets a cookie, or removes it if it has expired.
    /// Ignores a malformed value, as browsers do (RFC 6265, 5.2).
    pub(crate) fn set(&mut self, header: &[u8]) {
        let mut parts = header.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        let Some((name, value)) = parts.next().and_then(|part| split(part, b'=')) else { return };
        if name.is_empty() {
            return;
        }
        self.0.retain(|(known, _)| known != name);
        if !has_expired(parts) {
            self.0.push((name.to_vec(), value.to_vec()));
        }
    }

    /// Forgets all cookies.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Appends the `Cookie` header, if there are cookies.
    pub(crate) fn write_header(&self, out: &mut Vec<u8>) {
        if !self.0.is_empty() {
            out.extend_from_slice(b"Cookie: ");
            out.extend_from_slice(&self.value());
            out.extend_from_slice(b"\r\n");
        }
    }

    /// Returns the value of the `Cookie` header: empty if there are no cookies.
    pub(crate) fn value(&self) -> Vec<u8> {
        let mut value = Vec::new();
        for (name, of) in &self.0 {
            let separator: &[u8] = if value.is_empty() { b"" } else { b"; " };
            [separator, name, b"=", of].iter().for_each(|part| value.extend_from_slice(part));
        }
        value
    }
}

fn split(text: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let place = text.iter().position(|byte| *byte == at)?;
    Some((text[..place].trim_ascii(), text[place + 1..].trim_ascii()))
}

/// Returns true if the attributes say that the cookie has expired. `Max-Age` has precedence.
fn has_expired<'a>(attributes: impl Iterator<Item = &'a [u8]>) -> bool {
    let (mut max_age, mut expires) = (None, None);
    for (name, value) in attributes.filter_map(|attribute| split(attribute, b'=')) {
        let Ok(value) = std::str::from_utf8(value) else { continue };
        if name.eq_ignore_ascii_case(b"max-age") {
            max_age = value.parse::<i64>().ok();
        } else if name.eq_ignore_ascii_case(b"expires") {
            expires = httpdate::parse_http_date(value).ok();
        }
    }
    match max_age {
        Some(seconds) => seconds <= 0,
        None => expires.is_some_and(|expires| expires <= UNIX_EPOCH + clock::unix()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_are_set_replaced_and_removed() {
        let mut cookies = Cookies::default();
        let mut after = |header: &str| {
            cookies.set(header.as_bytes());
            String::from_utf8(cookies.value()).unwrap()
        };
        assert_eq!(after("id=1; Path=/; HttpOnly"), "id=1");
        assert_eq!(after(" user = ann=x ;Secure"), "id=1; user=ann=x");
        assert_eq!(
            after("id=2; Max-Age=60; Expires=Thu, 01 Jan 1970 00:00:00 GMT"),
            "user=ann=x; id=2"
        );
        assert_eq!(after("nothing"), "user=ann=x; id=2");
        assert_eq!(after("=x"), "user=ann=x; id=2");
        assert_eq!(after("user=; expires=Thu, 01 Jan 1970 00:00:00 GMT"), "id=2");
        assert_eq!(after("id=3; Expires=Fri, 01 Jan 2100 00:00:00 GMT"), "id=3");
        assert_eq!(after("id=; max-age=0"), "");
        let mut out = b"x".to_vec();
        cookies.write_header(&mut out);
        cookies.set(b"a=b");
        cookies.write_header(&mut out);
        assert_eq!(out, b"xCookie: a=b\r\n");
    }
}
