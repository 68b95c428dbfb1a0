//! A client that sends more than anything between it and itself holds, and reads its echo late.

use crate::common::PATIENCE;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread::JoinHandle;

/// More than the sockets' buffers and what a server may hold for one connection.
const TOTAL_BYTES: usize = 24 << 20;
const PIECE_BYTES: usize = 64 << 10;

/// A connection, written to by a thread.
pub(crate) struct LateReader {
    stream: TcpStream,
    writer: JoinHandle<()>,
}

/// The bytes of a piece: another text each, so that a loss or a swap shows.
fn piece(number: usize) -> Vec<u8> {
    (0..PIECE_BYTES).map(|at| (at * 31 + number * 7) as u8 ^ (at >> 8) as u8).collect()
}

impl LateReader {
    /// Connects and starts to write.
    pub(crate) fn start(address: SocketAddr) -> LateReader {
        let stream = TcpStream::connect(address).expect("the server listens");
        stream.set_read_timeout(Some(2 * PATIENCE)).expect("a socket has options");
        let mut other = stream.try_clone().expect("a descriptor");
        let writer = std::thread::spawn(move || {
            for number in 0..TOTAL_BYTES / PIECE_BYTES {
                other.write_all(&piece(number)).expect("the server takes it in the end");
            }
            other.shutdown(Shutdown::Write).expect("a socket can end");
        });
        LateReader { stream, writer }
    }

    /// Reads the echo to its end: all of it, unchanged.
    pub(crate) fn read_all(mut self) {
        let mut back = vec![0; PIECE_BYTES];
        for number in 0..TOTAL_BYTES / PIECE_BYTES {
            self.stream.read_exact(&mut back).expect("the server goes on");
            assert!(back == piece(number), "piece {number} came back changed");
        }
        assert_eq!(self.stream.read(&mut back).expect("an end"), 0);
        self.writer.join().expect("all was written");
    }
}
