//! Reads arbitrary bytes as a recording of the load generator (JSON). They are rejected with a
//! message of one line, or the recording is unchanged after writing and reading.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| annulus_load::fuzzing::recording(bytes));
