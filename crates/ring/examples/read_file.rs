//! Reads a file through the ring and prints it:
//! `cargo run -p annulus-ring --example read_file -- Cargo.toml`
#![allow(unsafe_code)]

use annulus_kernel::Fd;
use annulus_ring::{Ring, Wait, op};
use std::error::Error;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("no path was given; usage: read_file PATH")?;
    let file = File::open(&path).map_err(|e| format!("{path}: {e}"))?;
    // SAFETY: the file stays open longer than the ring.
    let fd = unsafe { Fd::from_raw(file.as_raw_fd()) };
    let mut ring = Ring::builder().entries(8).build()?;
    let mut buffer = vec![0; 64 * 1024];
    let mut offset = 0;
    loop {
        let read = op::Read { fd, buffer: buffer.as_mut_ptr(), len: buffer.len() as u32, offset };
        // SAFETY: the buffer is not used before the completion of the read, which is taken below.
        unsafe { ring.push_unchecked(read.entry()) }?;
        let completion = loop {
            ring.enter(Wait::For { completions: 1, timeout: None })?;
            if let Some(completion) = ring.completions().next() {
                break completion;
            }
        };
        match completion.result {
            0 => return Ok(()),
            error if error < 0 => return Err(io::Error::from_raw_os_error(-error).into()),
            len => io::stdout().write_all(&buffer[..len as usize])?,
        }
        offset += completion.result as u64;
    }
}
