//! What clients send: sizes of messages, requests by weight, and templates of requests.

mod fill;
mod sizes;
mod template;
mod weighted;

pub use fill::Fill;
pub use sizes::{MAX_LENGTH, Sizes, SizesError};
pub use template::{Template, TemplateError};
pub use weighted::{Mix, MixError};
