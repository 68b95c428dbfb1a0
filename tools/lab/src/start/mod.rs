//! Starting contenders: what they find, and when they are ready.

mod fixture;
mod running;

pub(crate) use fixture::Fixture;
pub(crate) use running::{Running, start};
