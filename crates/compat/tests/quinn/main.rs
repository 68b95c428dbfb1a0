//! quinn 0.11, unpatched: on io_uring, on epoll, as a guest of tokio, and on a simulated kernel.

mod common;
mod connections;
#[path = "../common/mod.rs"]
mod drivers;
mod examples;
mod failures;
#[path = "../programs/mod.rs"]
mod programs;
mod progress;
mod simulated;
mod socket;
mod threads;
