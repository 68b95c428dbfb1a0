//! quinn 0.11, unpatched: on io_uring, on epoll, as a guest of tokio, and on a simulated kernel.

mod common;
mod connections;
mod examples;
mod failures;
mod http3;
mod progress;
mod simulated;
mod socket;
mod threads;

use crate::common as drivers;
use crate::programs;
