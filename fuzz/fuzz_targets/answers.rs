//! What contenders of a bench answer, a line of JSON each: taken for a sample or not, and compared.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| annulus_lab::fuzzing::answers(text));
