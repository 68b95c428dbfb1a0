//! The socket alone: the metadata of received and sent datagrams.

use crate::quinn::common::*;
use annulus::net::{Transmit, UdpSocket};
use annulus_compat::quinn::Socket;
use quinn::AsyncUdpSocket;
use quinn::udp::{self, EcnCodepoint, RecvMeta};
use std::future::poll_fn;
use std::io::IoSliceMut;
use std::net::IpAddr;

/// Returns the datagrams of one receive call: the bytes of each buffer with their metadata.
async fn receive(socket: &Socket) -> Outcome<Vec<(Vec<u8>, RecvMeta)>> {
    let (mut memory, mut metas) = (vec![vec![0; 65_536]; 8], [RecvMeta::default(); 8]);
    let count = poll_fn(|cx| {
        let mut bufs: Vec<_> = memory.iter_mut().map(|buf| IoSliceMut::new(buf)).collect();
        socket.poll_recv(cx, &mut bufs, &mut metas)
    });
    let count = count.await?;
    Ok((0..count).map(|at| (memory[at][..metas[at].len].to_vec(), metas[at])).collect())
}

/// Receives this many datagrams, and returns each with its metadata.
async fn receive_all(socket: &Socket, wanted: usize) -> Outcome<Vec<(Vec<u8>, RecvMeta)>> {
    let mut all = Vec::new();
    while all.len() < wanted {
        for (bytes, meta) in receive(socket).await? {
            all.extend(bytes.chunks(meta.stride.max(1)).map(|part| (part.to_vec(), meta)));
        }
    }
    Ok(all)
}

#[test]
fn congestion_notification_and_addresses_are_reported() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        everywhere(async || {
            let (socket, peer) =
                (Socket::new(UdpSocket::bind(address)?)?, UdpSocket::bind(address)?);
            let (local, from) = (socket.local_addr()?, peer.local_addr()?);
            let marks =
                [None, Some(EcnCodepoint::Ect1), Some(EcnCodepoint::Ect0), Some(EcnCodepoint::Ce)];
            for (tos, mark) in (0..).zip(marks) {
                peer.send_with(vec![tos; 10], &Transmit::to(local).tos(tos)).await?;
                let (bytes, meta) = receive_all(&socket, 1).await?.remove(0);
                assert_eq!((bytes, meta.ecn), (vec![tos; 10], mark));
                assert_eq!((meta.addr, meta.dst_ip), (from, Some(local.ip())));
            }
            Ok(())
        });
    }
}

#[test]
fn sent_marks_segments_and_source_address_arrive() {
    everywhere(async || {
        let socket = Socket::new(UdpSocket::bind("0.0.0.0:0")?)?;
        let receiver = Socket::new(UdpSocket::bind("127.0.0.1:0")?)?;
        let source: IpAddr = "127.0.0.9".parse()?;
        let contents = pattern(1, 10 * 1200 + 300);
        socket.try_send(&udp::Transmit {
            destination: receiver.local_addr()?,
            ecn: Some(EcnCodepoint::Ect0),
            contents: &contents,
            segment_size: Some(1200),
            src_ip: Some(source),
        })?;
        let mut got = Vec::new();
        for (part, meta) in receive_all(&receiver, 11).await? {
            assert!(part.len() == 1200 || part.len() == 300, "{} bytes", part.len());
            assert_eq!((meta.ecn, meta.addr.ip()), (Some(EcnCodepoint::Ect0), source));
            got.extend(part);
        }
        assert!(got == contents);
        Ok(())
    });
}

/// The kernel splits a send into datagrams and coalesces them again, so one receive returns them
/// all.
#[test]
fn segments_are_coalesced_on_receive() {
    everywhere(async || {
        let bind = || Socket::new(UdpSocket::bind("127.0.0.1:0")?);
        let (socket, receiver) = (bind()?, bind()?);
        assert!(socket.max_transmit_segments() >= 10 && !socket.may_fragment());
        let contents = pattern(2, 10 * 1200);
        let before = annulus::counters().expect("in a runtime");
        for _ in 0..3 {
            socket.try_send(&udp::Transmit {
                destination: receiver.local_addr()?,
                ecn: None,
                contents: &contents,
                segment_size: Some(1200),
                src_ip: None,
            })?;
        }
        let sent = annulus::counters().expect("in a runtime").direct_sends - before.direct_sends;
        assert_eq!(sent, 3, "ten datagrams took more than one system call");
        let mut messages = Vec::new();
        while messages.len() < 3 {
            messages.extend(receive(&receiver).await?);
        }
        for (bytes, meta) in messages {
            assert_eq!((meta.stride, bytes == contents), (1200, true));
        }
        Ok(())
    });
}
