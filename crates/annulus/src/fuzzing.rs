//! Entry points into private code for the fuzz targets.

use crate::bytes::lease::Lease;
use crate::net::Datagram;
use crate::slots::datagrams::{MessageFormat, ReceivedMessage};
use annulus_kernel::{Control, Controls, MessageHead};

/// Parses a buffer as a received datagram of each format, and takes it apart. A buffer from the
/// kernel always has a complete header before the payload, so a shorter buffer is padded with
/// zeroes.
///
/// Buffers with descriptors are skipped, because their numbers could belong to open files.
pub fn datagram(bytes: &[u8]) {
    let formats = [
        MessageFormat::INET,
        MessageFormat::INET6,
        MessageFormat::UNIX,
        MessageFormat::UNIX_CREDENTIALS,
        MessageFormat::UNIX_DESCRIPTORS,
    ];
    for format in formats {
        let mut buffer = bytes.to_vec();
        buffer.resize(bytes.len().max(format.layout.payload_at()), 0);
        let head = MessageHead::read(&buffer).unwrap_or_default();
        let controls = &buffer[format.layout.control_at()..format.layout.payload_at()];
        let controls = &controls[..controls.len().min(head.control_len as usize)];
        let has_descriptors =
            |control| matches!(control, Control::Descriptors(_) | Control::ProcessDescriptor(_));
        if !Controls::new(controls).any(has_descriptors) {
            take_apart(buffer.clone(), format);
            hand_out(buffer, format);
        }
    }
}

fn take_apart(buffer: Vec<u8>, format: &'static MessageFormat) {
    let len = buffer.len();
    let payload = buffer[format.layout.payload_at()..].to_vec();
    let mut message = ReceivedMessage::parse(Lease::heap(buffer.into_boxed_slice(), len), format);
    assert_eq!(message.len(), payload.len());
    let _ = (message.inet_source(), message.source(), message.is_cut(), message.whole_len());
    let _ = message.controls().count();
    assert!(message.take_descriptors().is_empty());
    let segment = message.segment_size().filter(|size| *size > 0);
    let mut parts = Vec::new();
    while let Some(first) = message.split_first() {
        assert_eq!(
            Some(first.len()),
            segment,
            "a part before the last does not have the segment size"
        );
        parts.extend_from_slice(&first.into_bytes());
    }
    assert!(
        segment.is_none_or(|size| message.len() <= size),
        "the last part is longer than a segment"
    );
    parts.extend_from_slice(&message.into_bytes());
    assert!(parts == payload, "bytes of the payload are lost, duplicated or changed");
}

/// Parses the buffer the way a UDP socket returns it to its user.
fn hand_out(buffer: Vec<u8>, format: &'static MessageFormat) {
    let len = buffer.len();
    let message = ReceivedMessage::parse(Lease::heap(buffer.into_boxed_slice(), len), format);
    let Ok(datagram) = Datagram::new(message) else { return };
    assert!(datagram.whole_len >= datagram.bytes.len());
    let payload = datagram.bytes.to_vec();
    let parts: Vec<u8> = datagram.into_segments().flat_map(|part| part.to_vec()).collect();
    assert!(parts == payload, "bytes of the payload are lost, duplicated or changed");
}
