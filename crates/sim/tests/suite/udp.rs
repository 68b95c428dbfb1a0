//! UDP: the simulated kernel gives the same results as Linux.

use crate::common;

use annulus_kernel::*;
use common::messages::*;
use common::*;
use rustix::io::Errno;
use std::net::SocketAddr;

#[test]
fn recv_returns_whole_datagram_and_sender_address() {
    on_sim_and_linux(|mut host| {
        for domain in [Domain::Inet, Domain::Inet6] {
            let ((a, from), (b, to)) = (host.udp(domain), host.udp(domain));
            for len in [1, 100, 9000, 60_000] {
                assert_eq!(host.send_to(a, &to, &vec![7; len]), len as i32);
                let got = host.recv_msg(b, 65_536, 0, 0).unwrap();
                assert_eq!(got.sender(), inet_of(&from));
                assert!(got.bytes == vec![7; len]);
                assert_eq!((got.result, got.flags), (len as i32, 0));
            }
        }
    });
}

#[test]
fn recv_into_short_buffer_truncates_and_reports_it() {
    on_sim_and_linux(|mut host| {
        let ((a, _), (b, to)) = (host.udp(Domain::Inet), host.udp(Domain::Inet));
        (0..3).for_each(|_| assert_eq!(host.send_to(a, &to, &[7; 100]), 100));
        let got = host.recv_msg(b, 30, 0, 0).unwrap();
        assert_eq!((got.bytes, got.result, got.flags), (vec![7; 30], 30, msg::TRUNC));
        let got = host.recv_msg(b, 30, 0, msg::TRUNC).unwrap();
        assert_eq!((got.bytes.len(), got.result, got.flags), (30, 100, msg::TRUNC));
        assert_eq!(
            host.recv_some(b, 30),
            Ok(30),
            "a receive without a header reported the truncation"
        );
        assert_eq!(host.drain_until_quiet(), []);
    });
}

#[test]
fn empty_datagram_is_received() {
    on_sim_and_linux(|mut host| {
        let ((a, from), (b, to)) = (host.udp(Domain::Inet), host.udp(Domain::Inet));
        assert_eq!(host.send_to(a, &to, b""), 0);
        let got = host.recv_msg(b, 100, 0, 0).unwrap();
        assert_eq!((got.result, got.sender()), (0, inet_of(&from)));
        assert_eq!(host.send_to(a, &to, b""), 0);
        assert_eq!(host.recv_some(b, 100), Ok(0));
    });
}

#[test]
fn send_with_invalid_address_or_length_fails() {
    on_sim_and_linux(|mut host| {
        let ((a, _), (b, to)) = (host.udp(Domain::Inet), host.udp(Domain::Inet));
        assert_eq!(host.send(a, b"no target"), errno(Errno::DESTADDRREQ));
        assert_eq!(host.send_to(a, &to, &vec![0; 65_507]), 65_507);
        assert_eq!(host.send_to(a, &to, &vec![0; 65_508]), errno(Errno::MSGSIZE));
        let (newer, other) = host.udp(Domain::Inet6);
        assert_eq!(host.send_to(a, &other, b"x"), errno(Errno::AFNOSUPPORT));
        assert_eq!(host.send_to(newer, &inet("[::1]:0"), b"x"), errno(Errno::INVAL));
        assert_eq!(host.send_to(a, &inet("255.255.255.255:9"), b"x"), errno(Errno::ACCESS));
        assert_eq!(host.recv_some(b, 70_000), Ok(65_507));
    });
}

#[test]
fn bind_to_used_port_fails_until_it_is_closed() {
    on_sim_and_linux(|host| {
        let (a, address) = host.udp(Domain::Inet);
        let other = host.new_socket(Domain::Inet, SocketType::Datagram, false).unwrap();
        assert_eq!(refused(host.kernel.bind(other, &address)), Errno::ADDRINUSE);
        assert_eq!(refused(host.kernel.bind(a, &address)), Errno::INVAL);
        host.kernel.close(a);
        host.kernel.bind(other, &address).unwrap();
        let [one, two] = [(); 2].map(|()| {
            let fd = host.new_socket(Domain::Inet, SocketType::Datagram, false).unwrap();
            host.kernel.set_option(fd, SocketOption::ReusePort, 1).unwrap();
            fd
        });
        host.kernel.bind(one, &inet("127.0.0.1:0")).unwrap();
        host.kernel.bind(two, &host.kernel.local_address(one).unwrap()).unwrap();
    });
}

#[test]
fn first_send_binds_a_port() {
    on_sim_and_linux(|mut host| {
        let fd = host.new_socket(Domain::Inet, SocketType::Datagram, false).unwrap();
        let (b, to) = host.udp(Domain::Inet);
        assert_eq!(host.send_to(fd, &to, b"hello"), 5);
        let own = host.kernel.local_address(fd).unwrap().to_inet().unwrap();
        assert!(own.ip().is_unspecified() && own.port() != 0);
        let from = host.recv_msg(b, 100, 0, 0).unwrap().from.unwrap();
        assert_eq!(from.to_inet().unwrap(), SocketAddr::from(([127, 0, 0, 1], own.port())));
    });
}

#[test]
fn connected_socket_receives_only_from_peer_and_reports_its_errors() {
    on_sim_and_linux(|mut host| {
        let ((a, from), (b, to), (c, _)) =
            (host.udp(Domain::Inet), host.udp(Domain::Inet), host.udp(Domain::Inet));
        assert_eq!(refused(host.kernel.peer_address(a)), Errno::NOTCONN);
        host.kernel.connect(a, &to).unwrap();
        assert_eq!(inet_of(&host.kernel.peer_address(a).unwrap()), inet_of(&to));
        assert_eq!(host.send_to(c, &from, b"from some other"), 15);
        assert_eq!(host.send_to(b, &from, b"from the peer"), 13);
        assert_eq!(host.recv(a).unwrap(), b"from the peer");
        assert_eq!(host.send(a, b"question"), 8);
        assert_eq!(host.recv(b).unwrap(), b"question");
        host.kernel.close(b);
        assert_eq!(host.send(a, b"unreachable!"), 12);
        assert_eq!(host.drain_until_quiet(), []);
        assert_eq!(host.send(a, b"reports error"), errno(Errno::CONNREFUSED));
        host.drain_until_quiet();
        assert_eq!(
            host.kernel.option(a, SocketOption::Error).unwrap(),
            0,
            "the error was reported twice"
        );
        assert_eq!(host.send(a, b"again"), 5);
        assert_eq!(host.drain_until_quiet(), []);
        assert_eq!(host.recv(a), Err(errno(Errno::CONNREFUSED)));
    });
}

#[test]
fn waiting_recv_fails_when_peer_is_unreachable() {
    on_sim_and_linux(|mut host| {
        let ((a, _), (b, to)) = (host.udp(Domain::Inet), host.udp(Domain::Inet));
        host.kernel.connect(a, &to).unwrap();
        host.kernel.close(b);
        let buffers = ProvidedBuffers::new(&host.ring, 4, 256);
        let layout = MessageLayout { name: 28, control: 0 };
        let header = header_of(layout);
        host.push(1, recv_msg_multi(a, &header, 0));
        assert_eq!(host.reap(), []);
        host.push(2, send(a, b"x", WAITALL_FLAGS));
        let outcomes: Vec<_> = host.wait_for(2).iter().map(fields).collect();
        assert_eq!(outcomes, [(2, 1, false), (1, errno(Errno::CONNREFUSED), false)]);
        buffers.unregister(&host.ring);
    });
}

#[test]
fn multishot_recvmsg_writes_headers() {
    on_sim_and_linux(|mut host| {
        let ((a, from), (b, to)) = (host.udp(Domain::Inet), host.udp(Domain::Inet));
        host.kernel.set_option(b, SocketOption::RecvTos(Ip::V4), 1).unwrap();
        host.kernel.set_option(a, SocketOption::Tos(Ip::V4), 2).unwrap();
        let mut buffers = ProvidedBuffers::new(&host.ring, 8, 256);
        let layout = MessageLayout { name: 16, control: space(1) };
        let header = header_of(layout);
        host.push(1, recv_msg_multi(b, &header, msg::TRUNC));
        assert_eq!(host.reap(), []);
        let space = 256 - layout.payload_at();
        for len in [5, space, space + 50] {
            assert_eq!(host.send_to_beside(a, &to, &vec![3; len], 1), len as i32);
            let done = host.wait_for_user_data(1);
            let kept = len.min(space);
            assert!(done.more());
            assert_eq!(done.result as usize, layout.payload_at() + kept);
            let framed = buffers.framed(&done, layout);
            let cut = if len > space { msg::TRUNC } else { 0 };
            assert_eq!((framed.head.payload_len, framed.head.flags), (len as u32, cut));
            assert_eq!((framed.name, framed.bytes), (from.as_bytes().to_vec(), vec![3; kept]));
            assert_eq!(controls(&framed.control), [Control::Tos(2)]);
        }
        assert_eq!(host.send_to_beside(a, &to, b"", 1), 0);
        let done = host.wait_for_user_data(1);
        assert_eq!((done.more(), done.result as usize), (false, layout.payload_at()));
        assert_eq!(
            buffers.framed(&done, layout).head.payload_len,
            0,
            "the datagram that ended the receive is not empty"
        );
        buffers.unregister(&host.ring);
    });
}

#[test]
fn multishot_recvmsg_ends_when_cancelled_or_out_of_buffers() {
    on_sim_and_linux(|mut host| {
        let ((a, _), (b, to)) = (host.udp(Domain::Inet), host.udp(Domain::Inet));
        let mut buffers = ProvidedBuffers::new(&host.ring, 2, 128);
        let layout = MessageLayout { name: 0, control: 0 };
        let header = header_of(layout);
        host.push(1, recv_msg_multi(b, &header, 0));
        host.reap();
        host.push(2, cancel(1));
        let mut ends: Vec<_> = host.wait_for(2).iter().map(fields).collect();
        ends.sort_unstable();
        assert_eq!(ends, [(1, errno(Errno::CANCELED), false), (2, 0, false)]);
        (0..3).for_each(|n| assert_eq!(host.send_to(a, &to, &[n; 9]), 9));
        host.push(1, recv_msg_multi(b, &header, 0));
        let taken = host.drain_until_quiet();
        let outcomes: Vec<_> = taken.iter().map(fields).collect();
        assert_eq!(outcomes, [(1, 25, true), (1, 25, true), (1, errno(Errno::NOBUFS), false)]);
        assert_eq!(buffers.framed(&taken[0], layout).bytes, [0; 9]);
        host.push(1, recv_msg_multi(b, &header, 0));
        let taken = host.drain_until_quiet();
        // After the last buffer, the kernel tries again and finds none.
        let outcomes: Vec<_> = taken.iter().map(fields).collect();
        assert_eq!(outcomes, [(1, 25, true), (1, errno(Errno::NOBUFS), false)]);
        buffers.unregister(&host.ring);
    });
}

#[test]
fn multishot_recv_receives_datagrams() {
    on_sim_and_linux(|mut host| {
        let ((a, _), (b, to)) = (host.udp(Domain::Inet), host.udp(Domain::Inet));
        let mut buffers = ProvidedBuffers::new(&host.ring, 4, 64);
        host.push(1, recv_multi(b, 0));
        host.reap();
        for (text, got) in [(&[5; 10][..], 10), (&[6; 100], 64)] {
            assert_eq!(host.send_to_beside(a, &to, text, 1), text.len() as i32);
            let done = host.wait_for_user_data(1);
            assert_eq!((done.result, done.more()), (got, true));
            assert_eq!(buffers.bytes(&done), text[..got as usize]);
        }
        assert_eq!(host.send_to_beside(a, &to, b"", 1), 0);
        let done = host.wait_for_user_data(1);
        assert_eq!((fields(&done), done.buffer()), ((1, 0, false), None));
        buffers.unregister(&host.ring);
    });
}

#[test]
fn multishot_recvmsg_into_buffer_smaller_than_header_fails() {
    on_sim_and_linux(|mut host| {
        let ((a, _), (b, to)) = (host.udp(Domain::Inet), host.udp(Domain::Inet));
        let buffers = ProvidedBuffers::new(&host.ring, 4, 32);
        let header = header_of(MessageLayout { name: 28, control: 0 });
        host.push(1, recv_msg_multi(b, &header, 0));
        let mut taken = host.drain_until_quiet();
        if taken.is_empty() {
            assert_eq!(host.send_to_beside(a, &to, b"x", 1), 1);
            taken = vec![host.wait_for_user_data(1)];
        }
        assert_eq!(fields(&taken[0]), (1, errno(Errno::FAULT), false));
        buffers.unregister(&host.ring);
    });
}

#[test]
fn recvmsg_returns_only_requested_control_messages() {
    on_sim_and_linux(|mut host| {
        for (domain, ip, loopback) in
            [(Domain::Inet, Ip::V4, "127.0.0.1"), (Domain::Inet6, Ip::V6, "::1")]
        {
            let ((a, _), (b, to)) = (host.udp(domain), host.udp(domain));
            host.kernel.set_option(b, SocketOption::PacketInfo(ip), 1).unwrap();
            host.kernel.set_option(b, SocketOption::RecvTos(ip), 1).unwrap();
            let mark = match ip {
                Ip::V4 => Control::Tos(3),
                Ip::V6 => Control::TrafficClass(3),
            };
            assert_eq!(host.send_msg(a, Some(&to), b"x", &[mark]), 1);
            let got = host.recv_msg(b, 10, 128, 0).unwrap();
            let local = loopback.parse().unwrap();
            assert_eq!(got.controls(), [Control::PacketInfo { local, interface: 1 }, mark]);
            assert_eq!(host.send_msg(a, Some(&to), b"x", &[]), 1);
            let got = host.recv_msg(b, 10, 8, 0).unwrap();
            assert_eq!(
                (got.result, got.flags),
                (1, msg::CTRUNC),
                "a control message was written without space"
            );
        }
    });
}

#[test]
fn send_is_segmented_and_recv_coalesced_on_request() {
    on_sim_and_linux(|mut host| {
        let ((a, _), (b, to)) = (host.udp(Domain::Inet), host.udp(Domain::Inet));
        let bytes: Vec<u8> = (0..250).collect();
        assert_eq!(host.send_msg(a, Some(&to), &bytes, &[Control::SegmentSize(100)]), 250);
        host.drain_until_quiet();
        for part in bytes.chunks(100) {
            assert_eq!(host.recv(b).unwrap(), part);
        }
        host.kernel.set_option(b, SocketOption::Coalesce, 1).unwrap();
        assert_eq!(host.send_msg(a, Some(&to), &bytes, &[Control::SegmentSize(100)]), 250);
        host.drain_until_quiet();
        let got = host.recv_msg(b, 1000, 64, 0).unwrap();
        assert_eq!((&got.bytes, got.controls()), (&bytes, vec![Control::SegmentSize(100)]));
        assert_eq!(host.send_msg(a, Some(&to), &bytes, &[]), 250);
        host.drain_until_quiet();
        let got = host.recv_msg(b, 1000, 64, 0).unwrap();
        assert_eq!((&got.bytes, got.controls()), (&bytes, vec![]));
        let many = vec![0; 129];
        let refused = host.send_msg(a, Some(&to), &many, &[Control::SegmentSize(1)]);
        assert_eq!(refused, errno(Errno::INVAL));
    });
}

#[test]
fn full_socket_drops_and_counts_datagrams() {
    on_sim_and_linux(|mut host| {
        let ((a, _), (b, to)) = (host.udp(Domain::Inet), host.udp(Domain::Inet));
        host.kernel.set_option(b, SocketOption::DropCount, 1).unwrap();
        host.kernel.set_option(b, SocketOption::RecvBuffer, 20_000).unwrap();
        assert_eq!(host.kernel.option(b, SocketOption::RecvBuffer).unwrap(), 40_000);
        (0..200).for_each(|_| assert_eq!(host.send_to(a, &to, &[1; 1000]), 1000));
        host.drain_until_quiet();
        let mut kept = 0;
        while host.recv_now(b) == Ok(1000) {
            kept += 1;
        }
        assert!((5..60).contains(&kept), "{kept} of 200 datagrams were kept");
        assert_eq!(host.kernel.option(b, SocketOption::Drops).unwrap(), 200 - kept);
        assert_eq!(host.send_to(a, &to, b"last"), 4);
        let got = host.recv_msg(b, 100, 64, 0).unwrap();
        assert_eq!(got.controls(), [Control::Drops(200 - kept)]);
    });
}

#[test]
fn group_members_receive_multicast() {
    on_sim_and_linux(|mut host| {
        let group = [239, 7, 8, 9].into();
        let interface = [127, 0, 0, 1].into();
        let members = [(); 2].map(|()| {
            let fd = host.new_socket(Domain::Inet, SocketType::Datagram, false).unwrap();
            host.kernel.set_option(fd, SocketOption::ReuseAddress, 1).unwrap();
            fd
        });
        host.kernel.bind(members[0], &inet("239.7.8.9:0")).unwrap();
        let port = inet_of(&host.kernel.local_address(members[0]).unwrap()).port();
        let to: Address = SocketAddr::from(([239, 7, 8, 9], port)).into();
        host.kernel.bind(members[1], &to).unwrap();
        let join = Multicast::V4 { joins: true, group, interface };
        members.iter().for_each(|&fd| host.kernel.set_multicast(fd, join).unwrap());
        assert_eq!(refused(host.kernel.set_multicast(members[0], join)), Errno::ADDRINUSE);
        let (a, _) = host.udp(Domain::Inet);
        host.kernel.set_multicast(a, Multicast::InterfaceV4(interface)).unwrap();
        assert_eq!(host.send_to(a, &to, b"to all"), 6);
        members.iter().for_each(|&fd| assert_eq!(host.recv(fd).unwrap(), b"to all"));
        let leave = Multicast::V4 { joins: false, group, interface };
        let again = Err(errno(Errno::AGAIN));
        for (leaver, received) in members.into_iter().zip([Ok(4), again]) {
            host.kernel.set_multicast(leaver, leave).unwrap();
            assert_eq!(host.send_to(a, &to, b"rest"), 4);
            host.drain_until_quiet();
            // All sockets bound to the group receive, as long as one of them is a member.
            assert_eq!(members.map(|fd| host.recv_now(fd)), [received; 2]);
        }
        assert_eq!(refused(host.kernel.set_multicast(members[1], leave)), Errno::ADDRNOTAVAIL);
    });
}

#[test]
fn dual_stack_socket_exchanges_ipv4_datagrams() {
    on_sim_and_linux(|mut host| {
        let dual = host.new_socket(Domain::Inet6, SocketType::Datagram, false).unwrap();
        host.kernel.bind(dual, &inet("[::]:0")).unwrap();
        let port = inet_of(&host.kernel.local_address(dual).unwrap()).port();
        let (older, from) = host.udp(Domain::Inet);
        let to: Address = SocketAddr::from(([127, 0, 0, 1], port)).into();
        assert_eq!(host.send_to(older, &to, b"hello"), 5);
        let got = host.recv_msg(dual, 10, 0, 0).unwrap();
        let seen = got.from.unwrap();
        let port = inet_of(&from).port();
        assert_eq!(inet_of(&seen).to_string(), format!("[::ffff:127.0.0.1]:{port}"));
        assert_eq!(host.send_to(dual, &seen, b"answer"), 6);
        assert_eq!(host.recv(older).unwrap(), b"answer");
    });
}
