//! The messages of clients: requests by weight, and templates of requests.

mod fill;
mod template;
mod weighted;

pub use fill::Fill;
pub use template::Template;
pub use weighted::Mix;

/// Most bytes in a message of a stream: 64 MiB.
pub const MAX_LENGTH: usize = 64 << 20;
