//! Foreign code that panics wherever it runs: in drops, in wakers, in the drops of what it panicked with. The runtime ends in
//! order all the same, and no memory goes that the kernel may still read or write.
#![allow(unsafe_code)]

mod bytes;
#[path = "../common/mod.rs"]
mod common;
mod end;
mod files;
#[path = "../common/foreign.rs"]
mod foreign;
mod freed;
mod handles;
mod mode;
mod payloads;
mod wakers;
