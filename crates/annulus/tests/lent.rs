//! The modules of the suite in which memory is lent to a kernel, lost and forgotten. CI runs them
//! under the address sanitizer, where building the whole suite takes minutes. `cargo test` leaves
//! this program out.

mod common;

#[path = "suite/borrowed_descriptors.rs"]
mod borrowed_descriptors;
#[path = "suite/drops.rs"]
mod drops;
#[path = "suite/files/mod.rs"]
mod files;
#[path = "suite/foreign_bytes.rs"]
mod foreign_bytes;
#[path = "suite/forgotten.rs"]
mod forgotten;
#[path = "suite/owned_bytes.rs"]
mod owned_bytes;
#[path = "suite/sim/mod.rs"]
mod sim;
#[path = "suite/unwinding/mod.rs"]
mod unwinding;
#[path = "suite/zero_copy.rs"]
mod zero_copy;
