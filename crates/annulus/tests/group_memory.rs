//! Ten thousand members of a group that never read share the memory of the messages that wait.

#[path = "common/allocations.rs"]
mod allocations;
mod common;

use allocations::{held, most_held};
use annulus::Runtime;
use annulus::net::{RecvHalf, SendGroup, SendHalf, SlowMembers, TcpSocket};
use annulus::task::yield_now;
use annulus_skip::skip;
use common::{has_python, run_on};
use std::io;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

const MEMBERS: usize = 10_000;
const LIMIT: usize = 8 * 1024;
const MESSAGE: usize = 512;
/// More messages than the sockets and the limit of a member hold.
const MAX_MESSAGES: usize = 100;
/// Bytes that a member may take, with its share of the messages. A copy of its unsent messages
/// would take the limit.
const MAX_BYTES_PER_MEMBER: usize = LIMIT / 4;
/// Descriptors for the members and for everything else.
const NEEDED_DESCRIPTORS: u64 = MEMBERS as u64 + 100;

/// Starts peers that never read, in another process, since descriptors are scarce here. They end
/// when the process's input does.
fn peers(address: SocketAddr) -> io::Result<Child> {
    let script = format!(
        "import resource, socket, sys\n\
         resource.setrlimit(resource.RLIMIT_NOFILE, [resource.getrlimit(resource.RLIMIT_NOFILE)[1]] * 2)\n\
         peers = []\n\
         for _ in range({MEMBERS}):\n\
         \x20   peer = socket.socket()\n\
         \x20   peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)\n\
         \x20   peer.connect(('127.0.0.1', {}))\n\
         \x20   peers.append(peer)\n\
         sys.stdin.read()\n",
        address.port()
    );
    Command::new("python3").arg("-c").arg(script).stdin(Stdio::piped()).spawn()
}

async fn join_all(group: &SendGroup) -> io::Result<(Vec<(RecvHalf, SendHalf)>, Child)> {
    let socket = TcpSocket::new_v4()?;
    socket.set_send_buffer_size(4096)?;
    socket.bind("127.0.0.1:0".parse().expect("an address"))?;
    let listener = socket.listen(4096)?;
    let peers = peers(listener.local_addr()?)?;
    let mut halves = Vec::with_capacity(MEMBERS);
    for _ in 0..MEMBERS {
        let (receiving, sending) = listener.accept().await?.0.into_split();
        group.add(&sending);
        halves.push((receiving, sending));
    }
    Ok((halves, peers))
}

/// Sends messages that no member reads, and returns the maximum of bytes that were held per member.
fn bytes_per_member(slow: SlowMembers) -> usize {
    run_on(Runtime::builder(), async move {
        let group = SendGroup::new(slow).limit(LIMIT);
        let (halves, mut peers) = join_all(&group).await?;
        let before = held();
        most_held();
        for _ in 0..MAX_MESSAGES {
            group.send(vec![7; MESSAGE]);
            group.flush();
            yield_now().await;
        }
        let bytes = (most_held() - before) as usize / MEMBERS;
        let counts = group.counts();
        let members = MEMBERS as u64;
        match slow {
            SlowMembers::Disconnect => assert_eq!(counts.disconnected, members),
            SlowMembers::Skip => assert!(counts.skipped >= members, "{counts:?}"),
            SlowMembers::KeepLatest => assert!(counts.replaced >= members, "{counts:?}"),
        }
        drop(halves);
        drop(peers.stdin.take());
        peers.wait()?;
        Ok(bytes)
    })
}

#[test]
fn members_that_never_read_share_the_memory_of_messages() {
    if !has_python() {
        return;
    }
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    if limit.current.is_some_and(|current| current < NEEDED_DESCRIPTORS) {
        skip!("{NEEDED_DESCRIPTORS} descriptors are needed; see `ulimit -n`");
        return;
    }
    for slow in [SlowMembers::Disconnect, SlowMembers::Skip, SlowMembers::KeepLatest] {
        let bytes = bytes_per_member(slow);
        println!("{slow:?}: {bytes} bytes per member");
        assert!(bytes <= MAX_BYTES_PER_MEMBER, "{slow:?}: {bytes} bytes per member");
    }
}
