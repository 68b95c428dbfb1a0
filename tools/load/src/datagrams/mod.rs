//! Datagrams and their echoes: how many are echoed, how fast, and what happened to the others.
//!
//! Each client has a connected socket of its own and keeps a number of datagrams in flight. A datagram that is not echoed
//! within the time-out counts as lost and frees its slot, so that loss does not stall the client. Datagrams of 8 bytes and
//! more carry a number, and the bytes behind it belong to that number; so duplicated, late, reordered and corrupt echoes
//! are recognized. Shorter datagrams are all equal; their echoes are matched in the order of the sends.

mod client;
mod in_flight;
pub(crate) mod payload;
mod run;
mod socket;

pub(crate) use run::run;
