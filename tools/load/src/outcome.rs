/// The outcome of a request, according to its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    /// The reply is the expected one.
    Ok,
    /// The HTTP status.
    Status(u16),
    /// A failure that a gRPC server reports: 1 to 16.
    Grpc(u8),
    /// The HTTP status of a reply whose body is not the expected one.
    WrongBody(u16),
    /// The server reported a failure in the protocol's own form, or the reply is not the expected
    /// one.
    ErrorReply,
}
