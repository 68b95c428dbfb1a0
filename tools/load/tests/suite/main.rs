//! Tests of this crate that need no process of their own, in one program.

#[path = "../common/mod.rs"]
mod common;

mod datagrams;
mod durations;
mod fan_out;
mod protocols;
mod recordings;
mod streams;
