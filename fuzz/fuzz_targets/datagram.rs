//! Received datagrams: the kernel's head, address, control messages and payload in one buffer, of any bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| annulus::fuzzing::datagram(bytes));
