//! What a server under test writes to its standard error, in pieces of any size: the address is found, or it is not.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| annulus_lab::fuzzing::announcement(bytes));
