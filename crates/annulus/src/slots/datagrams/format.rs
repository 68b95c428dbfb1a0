//! How the buffer of a received datagram is laid out, for each family of sockets.

use annulus_kernel::{Domain, Layout, MOST_DESCRIPTORS, MsgHeader, space};
use std::ptr;

/// Room for a sender's address and for what travels beside the bytes. Fixed for a family, whatever a socket asks for: what
/// is not used is not touched. But for descriptors: the kernel opens as many as there is room for, asked for or not.
#[derive(Debug)]
pub(crate) struct Format {
    pub(crate) layout: Layout,
    pub(crate) domain: Domain,
    /// What multishot receives are started with: the two lengths.
    header: MsgHeader,
}

/// Packet information and service class, of both protocols; time; segment size.
const INET_CONTROL: usize = space(12) + space(20) + 2 * space(4) + space(16) + space(4);
/// Credentials.
const UNIX_CONTROL: usize = space(12);

impl Format {
    const fn new(domain: Domain, name: usize, control: usize) -> Self {
        // The payload starts with a cache line of its own. What is left over is the name's: in the other room the kernel
        // would open descriptors.
        let name = (Layout::HEAD + name + control).next_multiple_of(64) - Layout::HEAD - control;
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
        Self { layout, domain, header }
    }

    /// `struct sockaddr_in6` is the longest address here: 28 bytes.
    pub(crate) const INET: &'static Self = &Self::new(Domain::Inet, 32, INET_CONTROL);
    /// The same for sockets that speak IPv6.
    pub(crate) const INET6: &'static Self = &Self::new(Domain::Inet6, 32, INET_CONTROL);
    /// `struct sockaddr_un` has 110 bytes.
    pub(crate) const UNIX: &'static Self = &Self::new(Domain::Unix, 112, 0);
    /// Unix, with room for who sent it, and for nothing else.
    pub(crate) const UNIX_CREDENTIALS: &'static Self = &Self::new(Domain::Unix, 112, UNIX_CONTROL);
    /// Unix, with room for as many descriptors as one message can carry.
    pub(crate) const UNIX_DESCRIPTORS: &'static Self =
        &Self::new(Domain::Unix, 112, UNIX_CONTROL + space(4 * MOST_DESCRIPTORS));

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
        let formats =
            [Format::INET, Format::UNIX, Format::UNIX_CREDENTIALS, Format::UNIX_DESCRIPTORS];
        let payloads = formats.map(|format| format.layout.payload_at());
        assert_eq!(payloads.map(|at| at % 64), [0; 4]);
        assert!(payloads[0] + 65_527 <= 68 * 1024, "{payloads:?}");
        assert!(payloads[3] <= 4096, "{payloads:?}");
    }

    #[test]
    fn there_is_room_for_descriptors_only_where_they_are_asked_for() {
        let room = |format: &Format| format.layout.control;
        assert_eq!((room(Format::UNIX), room(Format::UNIX_CREDENTIALS)), (0, UNIX_CONTROL));
        assert!(room(Format::UNIX_DESCRIPTORS) >= space(4 * MOST_DESCRIPTORS));
    }
}
