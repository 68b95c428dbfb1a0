//! Moving bytes between files and streams.

mod copy;
mod send_file;

pub use copy::{CopyTo, copy};
