//! What clients send: sizes of messages, requests by weight, and templates of requests.

mod sizes;

pub use sizes::{Sizes, SizesError};
