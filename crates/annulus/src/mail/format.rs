//! How the buffer of a received datagram is laid out, for each family of sockets.

use annulus_ring::op::MsgHeader;
use annulus_ring::{Domain, Layout, MOST_DESCRIPTORS, space};
use std::ptr;

/// Room for a sender's address and for what travels beside the bytes. Fixed for a family, whatever a socket asks for: what
/// is not used is not touched.
#[derive(Debug)]
pub(crate) struct Format {
    pub(crate) layout: Layout,
    pub(crate) domain: Domain,
    /// Descriptors may come along.
    pub(crate) descriptors: bool,
    /// What multishot receives are started with: the two lengths.
    header: MsgHeader,
}

/// Packet information and service class, of both protocols; time; segment size.
const INET_CONTROL: usize = space(12) + space(20) + 2 * space(4) + space(16) + space(4);
/// Credentials.
const UNIX_CONTROL: usize = space(12);

impl Format {
    const fn new(domain: Domain, name: usize, control: usize, descriptors: bool) -> Self {
        // The payload starts with a cache line of its own.
        let control = (Layout::HEAD + name + control).next_multiple_of(64) - Layout::HEAD - name;
        let layout = Layout { name, control };
        let header = MsgHeader {
            name: ptr::null(),
            name_len: name as u32,
            vectors: ptr::null(),
            vector_count: 0,
            control: ptr::null(),
            control_len: control,
            flags: 0,
        };
        Self { layout, domain, descriptors, header }
    }

    /// `struct sockaddr_in6` is the longest address here: 28 bytes.
    pub(crate) const INET: &'static Self = &Self::new(Domain::Inet, 32, INET_CONTROL, false);
    /// The same for sockets that speak IPv6.
    pub(crate) const INET6: &'static Self = &Self::new(Domain::Inet6, 32, INET_CONTROL, false);
    /// `struct sockaddr_un` has 110 bytes.
    pub(crate) const UNIX: &'static Self = &Self::new(Domain::Unix, 112, UNIX_CONTROL, false);
    /// Unix, with room for as many descriptors as one message can carry.
    pub(crate) const UNIX_DESCRIPTORS: &'static Self =
        &Self::new(Domain::Unix, 112, UNIX_CONTROL + space(4 * MOST_DESCRIPTORS), true);

    /// Address of the header that a multishot receive is started with.
    pub(crate) fn header(&'static self) -> *const u8 {
        ptr::from_ref(&self.header).cast()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_start_on_a_cache_line_and_leave_room_for_the_largest_datagram() {
        let payloads = [Format::INET, Format::UNIX, Format::UNIX_DESCRIPTORS]
            .map(|format| format.layout.payload_at());
        assert_eq!(payloads.map(|at| at % 64), [0; 3]);
        assert!(payloads[0] + 65_527 <= 68 * 1024, "{payloads:?}");
        assert!(payloads[2] <= 4096, "{payloads:?}");
    }
}
