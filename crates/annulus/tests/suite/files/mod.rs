//! Files, with every way to make a call: each body runs on both drivers, under every policy.

mod bad_input;
mod cache;
mod cold;
mod copy;
mod cursor;
mod dirs;
mod drops;
mod durable;
mod hung;
mod leases;
mod locks;
mod many;
pub(crate) mod mode;
mod model;
mod paths;
mod pipes;
pub(crate) mod place;
mod refused;
mod registered;
mod short_reads;
mod stream;
mod whole;
