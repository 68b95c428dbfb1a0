//! Requests that are not served.

/// The status of an answer that refuses a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal(pub(crate) &'static str);

impl Refusal {
    pub(crate) const BAD_REQUEST: Self = Self("400 Bad Request");
    pub(crate) const NOT_FOUND: Self = Self("404 Not Found");
    pub(crate) const METHOD_NOT_ALLOWED: Self = Self("405 Method Not Allowed");
    pub(crate) const CONTENT_TOO_LARGE: Self = Self("413 Content Too Large");
    pub(crate) const HEAD_TOO_LARGE: Self = Self("431 Request Header Fields Too Large");
    pub(crate) const NOT_IMPLEMENTED: Self = Self("501 Not Implemented");
}
