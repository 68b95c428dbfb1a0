//! Accepts connections with one entry, sends a greeting to each and closes it:
//! `cargo run -p annulus-ring --example accept -- 127.0.0.1:7001`
#![allow(unsafe_code)]

use annulus_kernel::Fd;
use annulus_ring::{Ring, Wait, op};
use std::error::Error;
use std::io::{self, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd};

fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:7001".into());
    let listener = TcpListener::bind(&address).map_err(|e| format!("{address}: {e}"))?;
    println!("listening on {}", listener.local_addr()?);
    let mut ring = Ring::builder().entries(8).build()?;
    // SAFETY: the listener stays open longer than the ring.
    let fd = unsafe { Fd::from_raw(listener.as_raw_fd()) };
    let accept = op::AcceptMulti { fd }.entry();
    let mut armed = false;
    loop {
        if !armed {
            ring.push(accept)?;
        }
        ring.enter(Wait::For { completions: 1, timeout: None })?;
        armed = true;
        for completion in ring.completions() {
            armed &= completion.more();
            if completion.result < 0 {
                return Err(io::Error::from_raw_os_error(-completion.result).into());
            }
            // SAFETY: the descriptor in the completion is new, and no other code has it.
            let mut stream = unsafe { TcpStream::from_raw_fd(completion.result) };
            println!("connection from {}", stream.peer_addr()?);
            stream.write_all(b"hello from the ring\n")?;
        }
    }
}
