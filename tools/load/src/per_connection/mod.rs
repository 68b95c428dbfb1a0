//! A connection per message: connect, send, receive, close. This is the client of the published BenchEcho tables.
//!
//! A number of clients work at once, over one or several event loops. Two times are measured for each connection: the echo
//! (from the send to the last byte, as in those tables) is the service time, and the total (from before the connect) the response
//! time. Beside them stand the phases of the connection. Every byte is verified.
//!
//! The kernel keeps the port of a connection that the client has closed for a minute. Clients of an IPv4 loopback server
//! therefore use [`SOURCE_ADDRESSES`](crate::SOURCE_ADDRESSES) source addresses, 127.0.0.1 to 127.0.0.16, each with ports of its own.

mod connection;
mod run;

pub(crate) use run::run;
