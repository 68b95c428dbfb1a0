//! Bytes that a server under load sends back, of any value: they are verified without a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| annulus_load::fuzzing::echo(bytes));
