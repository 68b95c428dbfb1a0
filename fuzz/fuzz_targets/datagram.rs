//! Parses an arbitrary buffer as a received datagram: the kernel's head, address, control messages
//! and payload. No byte of the payload is lost or duplicated.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| annulus::internals::datagram(bytes));
