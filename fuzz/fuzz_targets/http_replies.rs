//! Replies of HTTP/1 from a server that may send anything: pieces of any size give the same, never a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| annulus_load::fuzzing::http(bytes));
