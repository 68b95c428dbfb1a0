//! Targets of a load: any text is refused, or is shown as the same target.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| annulus_cli::fuzzing::target(text));
