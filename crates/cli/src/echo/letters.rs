//! Echo of datagrams: each goes back to where it came from.

use super::stats::Tally;
use super::{Listen, Plan};
use annulus::net::{UdpOptions, UdpSocket};
use anyhow::{Context, Result};
use std::cell::Cell;
use std::io;
use std::net::SocketAddr;

/// What the kernel may hold for a socket until it is read: as much as it allows.
const BUFFER: usize = 8 << 20;

/// What was echoed.
#[derive(Debug, Default)]
pub(super) struct Letters {
    count: Cell<u64>,
    bytes: Cell<u64>,
}

/// Opens the socket of a listen.
pub(super) fn open(plan: &Plan, listen: &Listen) -> Result<(UdpSocket, SocketAddr)> {
    let options = UdpOptions::new().recv_buffer(BUFFER);
    let socket = options.bind(listen.addresses.as_slice());
    let socket = socket.map_err(|error| plan.cannot_listen(&listen.endpoint, error))?;
    let address = socket.local_addr().context("cannot tell the address listened on")?;
    Ok((socket, address))
}

impl Letters {
    pub(super) fn tally(&self) -> Tally {
        Tally { connections: 0, messages: self.count.get(), bytes: self.bytes.get() }
    }

    /// Echoes until something ends the socket. What cannot be sent is dropped: the next datagram has another sender.
    pub(super) async fn echo(&self, socket: UdpSocket) -> io::Result<()> {
        loop {
            let (letter, from) = match socket.recv_from().await {
                Ok(received) => received,
                Err(error) if is_of_one_datagram(&error) => continue,
                Err(error) => return Err(error),
            };
            self.count.set(self.count.get() + 1);
            self.bytes.set(self.bytes.get() + letter.len() as u64);
            // An error tells of an earlier datagram, and so does not end the socket.
            let _ = socket.send_to(letter, from).await;
        }
    }
}

/// Whether an error says something of one datagram, and nothing of the next.
fn is_of_one_datagram(error: &io::Error) -> bool {
    use io::ErrorKind::{
        ConnectionRefused, HostUnreachable, InvalidData, NetworkUnreachable, PermissionDenied,
    };
    [ConnectionRefused, HostUnreachable, InvalidData, NetworkUnreachable, PermissionDenied]
        .contains(&error.kind())
}
