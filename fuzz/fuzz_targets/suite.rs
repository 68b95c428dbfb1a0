//! Suite files: any text is a suite all of whose cells can be asked, or is refused in one line.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| annulus_lab::fuzzing::suite(text));
