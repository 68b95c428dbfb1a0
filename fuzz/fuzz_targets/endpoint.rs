//! Parses arbitrary text as an endpoint of the command line. It is rejected with an error message,
//! or its printed form is parsed as the same endpoint.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| annulus_cli::fuzzing::endpoint(text));
