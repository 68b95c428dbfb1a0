//! Parses arbitrary text as a suite file. It is rejected with a message of one line, or each cell
//! of the suite is measured on at least one server.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| annulus_lab::fuzzing::suite(text));
