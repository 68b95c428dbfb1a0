//! Recordings of the load generator (JSON): refused in one line, or written so that they are read again.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| annulus_load::fuzzing::recording(bytes));
