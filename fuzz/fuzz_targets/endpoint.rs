//! Endpoints of the command line, of any bytes: each is refused with a text, or printed so that it is parsed again.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| annulus_cli::fuzzing::endpoint(bytes));
