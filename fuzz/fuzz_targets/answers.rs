//! Answers of a bench's contenders, one line of JSON each. Each answer is read as a sample or
//! rejected, and the samples are compared. Nothing panics.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| annulus_lab::fuzzing::answers(text));
