//! What comes back from the server under load, which may be anything: verified, never a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| annulus_load::fuzzing::echo(bytes));
