//! Tests of this crate that need no process of their own, as one program.

#[path = "../common/mod.rs"]
mod common;

mod datagrams;
mod protocols;
mod recordings;
mod streams;
