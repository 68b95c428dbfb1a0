//! Tests of this crate that do not need their own process, in one program.

#[path = "../common/mod.rs"]
mod common;

mod datagrams;
mod durations;
mod protocols;
mod recordings;
mod streams;
