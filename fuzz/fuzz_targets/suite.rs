//! Parses arbitrary text as a suite file. It is refused with a message of one line, or every cell
//! of the suite is a question to at least one server.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| annulus_lab::fuzzing::suite(text));
