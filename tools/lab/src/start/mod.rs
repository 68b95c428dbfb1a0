//! Starts contenders: provides files and addresses, and waits until they are ready.

mod fixture;
mod running;

pub(crate) use fixture::Fixture;
pub(crate) use running::{Running, start};
