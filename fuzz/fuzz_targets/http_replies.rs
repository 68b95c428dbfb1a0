//! Parses arbitrary bytes as HTTP/1 replies. The result does not depend on the size of the pieces
//! in which they arrive, and nothing panics.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| annulus_load::fuzzing::http(bytes));
