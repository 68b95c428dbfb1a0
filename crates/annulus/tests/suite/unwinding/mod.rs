//! Foreign code that panics wherever it runs: in drops, in wakers, and in drops of panic payloads.
//! The runtime still ends cleanly, and frees no memory that the kernel may still read or write.
#![allow(unsafe_code)]

mod bytes;
mod end;
mod files;
use crate::common::foreign;
mod freed;
mod handles;
mod mode;
mod payloads;
mod wakers;
