//! Parses arbitrary text as a comparison file of the lab. It is rejected with a message of one
//! line, or, if it has published tables, each of their cells is measured on at least one server.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| annulus_lab::fuzzing::suite(text));
