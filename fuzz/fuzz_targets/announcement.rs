//! Standard error of a server under test: an address that is found in the first lines stays the same with further ones.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| annulus_lab::fuzzing::announcement(bytes));
