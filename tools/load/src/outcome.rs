//! Outcomes of requests.

/// The outcome of a request, as its reply says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    /// As expected.
    Ok,
    /// The status of HTTP.
    Status(u16),
    /// The server's word for a failure, in the protocol's own form.
    ErrorReply,
}
