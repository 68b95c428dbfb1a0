//! The load's check of echoed bytes, given arbitrary bytes: it never panics, and its result does
//! not depend on how a stream is split into pieces.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| annulus_load::fuzzing::echo(bytes));
