//! Endpoints of the command line, of any text: each is refused with a text, or printed so that it is parsed again.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| annulus_cli::fuzzing::endpoint(text));
