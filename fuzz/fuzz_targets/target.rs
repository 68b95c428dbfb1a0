//! Parses arbitrary text as a target of a load. It is rejected with an error message, or its
//! printed form is parsed as the same target.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| annulus_cli::fuzzing::target(text));
