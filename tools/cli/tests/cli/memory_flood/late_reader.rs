//! A client that sends more than the server and the socket buffers can hold between them, and reads
//! the echo late.

use crate::common::PATIENCE;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread::JoinHandle;

/// More than the server and the socket buffers can hold between them for one connection.
const TOTAL_BYTES: usize = 24 << 20;
const PIECE_BYTES: usize = 64 << 10;

/// A connection, and the thread that writes to it.
pub(crate) struct LateReader {
    stream: TcpStream,
    writer: JoinHandle<()>,
}

/// Returns the bytes of a piece. All pieces differ, so that a lost or swapped one is noticed.
fn piece(number: usize) -> Vec<u8> {
    let high_bits = ((number >> 8) & 0xff) as u8;
    (0..PIECE_BYTES).map(|at| (at * 31 + number * 7) as u8 ^ (at >> 8) as u8 ^ high_bits).collect()
}

impl LateReader {
    /// Connects and starts writing.
    pub(crate) fn start(address: SocketAddr) -> LateReader {
        let stream = TcpStream::connect(address).expect("cannot connect to the server");
        stream.set_read_timeout(Some(2 * PATIENCE)).expect("cannot set the read timeout");
        let mut other = stream.try_clone().expect("cannot duplicate the socket");
        let writer = std::thread::spawn(move || {
            for number in 0..TOTAL_BYTES / PIECE_BYTES {
                other.write_all(&piece(number)).expect("writing to the server failed");
            }
            other.shutdown(Shutdown::Write).expect("cannot shut the socket down");
        });
        LateReader { stream, writer }
    }

    /// Reads the echo to its end and asserts that it is complete and unchanged.
    pub(crate) fn read_all(mut self) {
        let mut back = vec![0; PIECE_BYTES];
        for number in 0..TOTAL_BYTES / PIECE_BYTES {
            self.stream.read_exact(&mut back).expect("the echo ended early");
            assert!(back == piece(number), "the echo of piece {number} differs");
        }
        assert_eq!(self.stream.read(&mut back).expect("no EOF after the echo"), 0);
        self.writer.join().expect("the writer panicked");
    }
}
