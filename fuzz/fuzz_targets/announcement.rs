//! Standard error of a server under test: further lines do not change an address that was found in
//! the first lines.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| annulus_lab::fuzzing::announcement(bytes));
