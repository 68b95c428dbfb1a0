//! Parses the standard error of a server under test: an address that was found in the first lines
//! does not change with further lines.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| annulus_lab::fuzzing::announcement(bytes));
