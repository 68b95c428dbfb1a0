//! Answers of a bench's contenders, a line of JSON each: each is read as a sample or refused, and samples are compared.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| annulus_lab::fuzzing::answers(text));
