//! Foreign code that panics wherever it runs: in drops, in wakers, in the drops of what it panicked with. The runtime ends in
//! order all the same, and no memory goes that the kernel may still read or write.
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
