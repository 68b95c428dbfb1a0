//! Unix sockets: streams and datagrams at paths and abstract names, credentials and descriptors.
#![allow(unsafe_code)]

use crate::common::{pattern, receive};
use annulus::io::AsyncRecv;
use annulus::net::{UnixDatagram, UnixListener, UnixOptions, UnixStream};
use annulus::spawn;
use annulus::time::timeout;
use annulus_skip::skip;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use std::ffi::OsString;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Time limit, far longer than a datagram takes.
const DEADLINE: Duration = Duration::from_secs(20);

/// A path for this test only, removed at the end.
pub(super) struct TestPath(pub(super) PathBuf);

impl TestPath {
    pub(super) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("annulus-unix-{}-{n}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl AsRef<Path> for TestPath {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Drop for TestPath {
    fn drop(&mut self) {
        _ = std::fs::remove_file(&self.0);
    }
}

async fn echo(mut stream: UnixStream) -> io::Result<()> {
    while let Some(lease) = stream.recv().await? {
        stream.send(lease).await?;
    }
    Ok(())
}

async fn exchange(mut client: UnixStream) -> io::Result<()> {
    let text = pattern(300_000);
    let (mut receiving, mut sending) = client_halves(&mut client)?;
    let sent = text.clone();
    let sender = spawn(async move {
        sending.send(sent).await?;
        sending.shutdown().await
    });
    let mut got = Vec::new();
    while let Some(lease) = receiving.recv().await? {
        got.extend_from_slice(&lease);
    }
    assert!(got == text);
    sender.await.expect("the task panicked")
}

fn client_halves(
    client: &mut UnixStream,
) -> io::Result<(annulus::net::RecvHalf, annulus::net::SendHalf)> {
    let (placeholder, _) = UnixStream::pair()?;
    Ok(std::mem::replace(client, placeholder).into_split())
}

pub(crate) async fn streams_at_a_path_echo() -> io::Result<()> {
    let path = TestPath::new();
    let listener = UnixListener::bind(&path)?;
    assert_eq!(listener.local_addr()?.as_pathname(), Some(path.as_ref()));
    let client = UnixStream::connect(&path).await?;
    let (server, from) = listener.accept().await?;
    assert!(from.is_unnamed());
    assert_eq!(client.peer_addr()?.as_pathname(), Some(path.as_ref()));
    spawn(echo(server));
    exchange(client).await
}

pub(crate) async fn streams_by_an_abstract_name_echo() -> io::Result<()> {
    let path = TestPath::new();
    let name = SocketAddr::from_abstract_name(path.0.as_os_str().as_encoded_bytes())?;
    let listener = UnixListener::bind_addr(&name)?;
    let client = UnixStream::connect_addr(&name).await?;
    let (server, _) = listener.accept().await?;
    assert_eq!(server.local_addr()?.as_abstract_name(), name.as_abstract_name());
    // A path that begins with a zero byte means the same name.
    let written = OsString::from_vec([&[0], path.0.as_os_str().as_bytes()].concat());
    let error = UnixListener::bind(&written).map(drop).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse, "{error}");
    drop(UnixStream::connect(&written).await?);
    spawn(echo(server));
    exchange(client).await?;
    assert!(!path.0.exists(), "an abstract name created a file");
    Ok(())
}

pub(crate) async fn a_pair_half_closes() -> io::Result<()> {
    let (mut one, mut other) = UnixStream::pair()?;
    one.send("the request").await?;
    one.shutdown().await?;
    assert_eq!(receive(&mut other, 100).await?, b"the request");
    assert!(other.recv().await?.is_none());
    other.send("an answer").await?;
    drop(other);
    assert_eq!(receive(&mut one, 100).await?, b"an answer");
    Ok(())
}

pub(crate) async fn a_path_in_use_is_refused_and_a_stale_one_replaced() -> io::Result<()> {
    let path = TestPath::new();
    let listener = UnixListener::bind(&path)?;
    let error = UnixListener::bind(&path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    assert!(error.to_string().contains("a server listens on this path"), "{error}");
    let error = UnixDatagram::bind(&path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrInUse, "{error}");
    drop(listener);
    // The listener closes at the end of this turn.
    annulus::task::yield_now().await;
    let error = UnixStream::connect(&path).await.unwrap_err();
    assert_eq!(
        error.kind(),
        ErrorKind::NotFound,
        "the path of a closed listener was not removed: {error}"
    );
    let listener = UnixListener::bind(&path)?;
    drop(UnixStream::connect(&path).await?);
    drop(listener);
    Ok(())
}

pub(crate) async fn a_path_that_is_too_long_is_refused() -> io::Result<()> {
    let longest = "x".repeat(107);
    let error = UnixListener::bind(format!("{longest}x")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("108 bytes is above the limit of 107"), "{error}");
    let error = UnixStream::connect(format!("{longest}x")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    Ok(())
}

pub(crate) async fn datagrams_at_paths_are_echoed() -> io::Result<()> {
    let (here, there) = (TestPath::new(), TestPath::new());
    let server = UnixDatagram::bind(&there)?;
    let client = UnixDatagram::bind(&here)?;
    let answers = spawn(async move {
        for _ in 0..5 {
            let (datagram, from) = server.recv_from().await?;
            server.send_to_addr(datagram, &from).await?;
        }
        server.drain().await
    });
    for len in [1, 0, 1000, 0, 60_000] {
        client.send_to(pattern(len), &there).await?;
        let (got, from) = client.recv_from().await?;
        assert!(*got == *pattern(len), "{len}");
        assert_eq!(from.as_pathname(), Some(there.as_ref()));
    }
    answers.await.expect("the task panicked")
}

pub(crate) async fn a_slow_receiver_loses_no_datagram() -> io::Result<()> {
    let path = TestPath::new();
    let receiver = UnixDatagram::bind(&path)?;
    let unnamed = UnixDatagram::bind_addr(&SocketAddr::from_pathname("")?)?;
    let connected = UnixDatagram::bind_addr(&SocketAddr::from_pathname("")?)?;
    connected.connect(&path)?;
    let count = 300u32;
    let to = path.0.clone();
    let senders = [
        spawn(async move {
            for n in 0..count {
                unnamed.send_to(n.to_ne_bytes().to_vec(), &to).await?;
            }
            unnamed.drain().await
        }),
        spawn(async move {
            for n in count..2 * count {
                connected.send(n.to_ne_bytes().to_vec()).await?;
            }
            connected.drain().await
        }),
    ];
    let mut next = [0, count];
    for _ in 0..2 * count {
        annulus::task::yield_now().await;
        let datagram = receiver.recv().await?;
        let n = u32::from_ne_bytes(datagram[..].try_into().expect("not four bytes"));
        let sender = usize::from(n >= count);
        assert_eq!(n, next[sender], "the datagrams of a sender were reordered");
        next[sender] += 1;
    }
    for sender in senders {
        sender.await.expect("the task panicked")?;
    }
    Ok(())
}

pub(crate) async fn several_tasks_drain_one_socket() -> io::Result<()> {
    let (sender, reader) = UnixDatagram::pair()?;
    let sender = Rc::new(sender);
    for n in 0..30u8 {
        sender.send(vec![n]).await?;
    }
    let drains: Vec<_> = (0..3)
        .map(|_| {
            let sender = sender.clone();
            spawn(async move { sender.drain().await })
        })
        .collect();
    assert!(crate::common::touch(sender.drain()).is_none(), "the drain did not wait");
    for n in 0..30u8 {
        assert_eq!(*reader.recv().await?, [n]);
    }
    for drain in drains {
        drain.await.expect("the task panicked")?;
    }
    Ok(())
}

/// The kernel counts unread datagrams against the send buffer.
pub(crate) async fn a_new_peer_does_not_get_datagrams_that_wait_for_the_former_one()
-> io::Result<()> {
    let paths = [TestPath::new(), TestPath::new()];
    let [former, next] = [UnixDatagram::bind(&paths[0])?, UnixDatagram::bind(&paths[1])?];
    let sender = UnixDatagram::bind_addr(&SocketAddr::from_pathname("")?)?;
    sender.set_send_buffer_size(0)?;
    sender.connect(&paths[0])?;
    for n in 0..50u8 {
        sender.send(vec![n]).await?;
    }
    for _ in 0..3 {
        annulus::task::yield_now().await;
    }
    sender.connect(&paths[1])?;
    sender.send("next").await?;
    for n in 0..50u8 {
        let received = timeout(DEADLINE, former.recv()).await.expect("a datagram was lost");
        assert_eq!(*received?, [n]);
    }
    let received = timeout(DEADLINE, next.recv()).await.expect("a datagram was lost");
    assert_eq!(&*received?, b"next");
    Ok(())
}

pub(crate) async fn a_drain_returns_the_error_of_a_refused_datagram() -> io::Result<()> {
    let (missing, path) = (TestPath::new(), TestPath::new());
    let receiver = UnixDatagram::bind(&path)?;
    let sender = UnixDatagram::bind_addr(&SocketAddr::from_pathname("")?)?;
    sender.send_to("missing", &missing).await?;
    sender.send_to("received", &path).await?;
    assert_eq!(&*receiver.recv().await?, b"received");
    let error = sender.drain().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("sending a datagram of 7 bytes to /"), "{error}");
    sender.drain().await?;
    Ok(())
}

pub(crate) async fn every_path_has_its_own_failure() -> io::Result<()> {
    let path = TestPath::new();
    let reader = UnixDatagram::bind(&path)?;
    let missing: Vec<TestPath> = (0..20).map(|_| TestPath::new()).collect();
    let sender = UnixDatagram::bind_addr(&SocketAddr::from_pathname("")?)?;
    for path in &missing[..3] {
        sender.send_to("missing", path).await?;
    }
    sender.send_to("the last", &path).await?;
    assert_eq!(&*reader.recv().await?, b"the last");
    for path in &missing[..3] {
        let error = sender.send_to("not sent", path).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains(&*path.0.to_string_lossy()), "{error}");
    }
    sender.drain().await?;
    // There are more paths than failures that are kept, so the rest are only counted.
    for path in &missing {
        sender.send_to("missing", path).await?;
    }
    let error = sender.drain().await.unwrap_err();
    assert!(error.to_string().ends_with("; 19 more were not sent"), "{error}");
    sender.drain().await
}

/// The kernel counts unread datagrams against the send buffer. These stay below any limit.
pub(crate) async fn receivers_that_do_not_read_do_not_block_others() -> io::Result<()> {
    const ROUNDS: u32 = 40;
    let paths: Vec<TestPath> = (0..5).map(|_| TestPath::new()).collect();
    let receivers = paths.iter().map(UnixDatagram::bind).collect::<io::Result<Vec<_>>>()?;
    let path = TestPath::new();
    let reader = UnixDatagram::bind(&path)?;
    let unnamed = SocketAddr::from_pathname("")?;
    let sender = UnixOptions::new().unordered(true).bind_addr(&unnamed)?;
    let mut discarded = 0;
    for n in 0..ROUNDS {
        for path in &paths {
            // The next send to a path returns the error of a discarded datagram.
            match timeout(DEADLINE, sender.send_to("x", path)).await.expect("a send is blocked") {
                Err(error) if error.kind() == ErrorKind::WouldBlock => discarded += 1,
                other => other?,
            }
        }
        sender.send_to(n.to_ne_bytes().to_vec(), &path).await?;
        let got = timeout(DEADLINE, reader.recv()).await.expect("no datagram arrived in time");
        assert_eq!(*got?, n.to_ne_bytes());
    }
    let queue = std::fs::read_to_string("/proc/sys/net/unix/max_dgram_qlen").unwrap_or_default();
    let is_deep = queue.trim().parse().is_ok_and(|length: u32| length >= ROUNDS);
    assert!(discarded > 0 || is_deep, "the bound was never reached");
    // The receivers close, so their datagrams are refused and no send waits any longer.
    drop(receivers);
    annulus::task::yield_now().await;
    while sender.drain().await.is_err() {}
    Ok(())
}

/// Accepted but unsent datagrams are bounded. Sending continues once the receiver reads.
pub(crate) async fn a_slow_receiver_blocks_its_sender() -> io::Result<()> {
    let (sender, reader) = UnixDatagram::pair()?;
    let mut accepted = 0u32;
    for turn in 0..10_000 {
        if let Some(sent) = crate::common::touch(sender.send(accepted.to_ne_bytes().to_vec())) {
            sent?;
            accepted += 1;
        } else if turn > 1000 {
            break;
        }
        annulus::task::yield_now().await;
    }
    // The receiver's kernel queue holds at most a few hundred datagrams, and the unsent limit
    // allows a few more.
    assert!((1..2000).contains(&accepted), "{accepted} datagrams were accepted");
    for n in 0..accepted {
        assert_eq!(*reader.recv().await?, n.to_ne_bytes());
    }
    sender.drain().await
}

/// Only on Linux: the peer of a simulated socket is no process.
pub(crate) async fn each_end_knows_the_process_of_the_other() -> io::Result<()> {
    let (one, other) = UnixStream::pair()?;
    for stream in [&one, &other] {
        assert_eq!(stream.peer_cred()?.pid, std::process::id());
        match stream.peer_pidfd() {
            Ok(process) => assert!(names_this_process(&process)?),
            // Linux before 6.5 does not have the option.
            Err(error) => assert!(error.to_string().contains("os error 92"), "{error}"),
        }
    }
    let (one, other) = UnixOptions::new().credentials(true).datagram_pair()?;
    one.send("hello").await?;
    let message = other.recv_message().await?;
    assert_eq!(message.credentials.map(|credentials| credentials.pid), Some(std::process::id()));
    Ok(())
}

/// Returns true if this process descriptor refers to the test's own process.
fn names_this_process(process: &OwnedFd) -> io::Result<bool> {
    let about = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", process.as_raw_fd()))?;
    Ok(about.lines().any(|line| line == format!("Pid:\t{}", std::process::id())))
}

fn pipe() -> io::Result<(io::PipeReader, io::PipeWriter)> {
    io::pipe()
}

/// Returns true if the passed descriptor is the write end of this pipe.
fn is_writer_of(reader: &mut io::PipeReader, passed: OwnedFd) -> io::Result<bool> {
    let mut writer = std::fs::File::from(passed);
    writer.write_all(b"x")?;
    drop(writer);
    let mut got = [0; 1];
    Ok(reader.read(&mut got)? == 1 && got == *b"x")
}

pub(crate) async fn streams_pass_descriptors() -> io::Result<()> {
    let (mut one, mut other) = UnixOptions::new().descriptors(true).pair()?;
    let mut readers = Vec::new();
    for count in [1, 3, 0] {
        let mut descriptors = Vec::new();
        for _ in 0..count {
            let (reader, writer) = pipe()?;
            readers.push(reader);
            descriptors.push(OwnedFd::from(writer));
        }
        one.send_with_descriptors(format!("{count} of them"), descriptors).await?;
    }
    for count in [1, 3, 0] {
        let (bytes, descriptors) =
            other.recv_with_descriptors().await?.expect("the stream ended too early");
        assert_eq!(*bytes, *format!("{count} of them").as_bytes());
        assert_eq!(descriptors.len(), count);
        for passed in descriptors {
            assert!(is_writer_of(&mut readers.remove(0), passed)?);
        }
    }
    // Bytes without descriptors are passed too.
    let text = pattern(100_000);
    one.send(text.clone()).await?;
    one.shutdown().await?;
    assert!(receive(&mut other, text.len()).await? == text);
    assert!(other.recv_with_descriptors().await?.is_none());
    Ok(())
}

/// The kernel ends a receive after the bytes that carry a descriptor. The bytes that follow are
/// received as well.
pub(crate) async fn bytes_after_a_descriptor_are_received() -> io::Result<()> {
    let path = TestPath::new();
    let listener = UnixListener::bind(&path)?;
    let mut peer = std::os::unix::net::UnixStream::connect(&path)?;
    let (mut stream, _) = listener.accept().await?;
    for _ in 0..3 {
        pass(&peer, b"a")?;
        peer.write_all(b"bcd")?;
        assert_eq!(receive(&mut stream, 4).await?, b"abcd");
    }
    Ok(())
}

/// Sends bytes with a descriptor as another program would.
fn pass(peer: &std::os::unix::net::UnixStream, bytes: &[u8]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [peer.as_fd()];
    assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
    rustix::net::sendmsg(peer, &[IoSlice::new(bytes)], &mut control, SendFlags::empty())?;
    Ok(())
}

pub(crate) async fn datagrams_pass_descriptors() -> io::Result<()> {
    let (one, other) = UnixOptions::new().descriptors(true).datagram_pair()?;
    let (mut reader, writer) = pipe()?;
    one.send_with_descriptors("here", vec![writer.into()]).await?;
    let mut message = other.recv_message().await?;
    assert_eq!((&*message.bytes, message.descriptors.len()), (&b"here"[..], 1));
    assert!(is_writer_of(&mut reader, message.descriptors.remove(0))?);
    Ok(())
}

pub(crate) async fn descriptors_that_are_not_taken_are_closed() -> io::Result<()> {
    let options = UnixOptions::new().descriptors(true);
    let mut readers = Vec::new();
    let mut writer = || -> io::Result<Vec<OwnedFd>> {
        let (reader, writer) = pipe()?;
        readers.push(reader);
        Ok(vec![writer.into()])
    };
    // Sends descriptors that a plain receive takes, that nobody takes, that are still in flight,
    // and that go to sockets without the option.
    let (mut one, mut other) = options.pair()?;
    one.send_with_descriptors("a", writer()?).await?;
    assert_eq!(&*other.recv().await?.expect("the stream ended too early"), b"a");
    let (datagrams, reader) = options.datagram_pair()?;
    datagrams.send_with_descriptors("b", writer()?).await?;
    datagrams.drain().await?;
    assert!(crate::common::touch(reader.recv()).is_none());
    annulus::task::yield_now().await;
    datagrams.send_with_descriptors("c", writer()?).await?;
    let (mut plain, mut plain_peer) = UnixStream::pair()?;
    let error = plain.send_with_descriptors("d", writer()?).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let (passing, simple) = (options.datagram_pair()?, UnixDatagram::pair()?);
    simple.0.send_with_descriptors("e", writer()?).await?;
    assert_eq!(&*simple.1.recv().await?, b"e");
    passing.0.send_with_descriptors("f", writer()?).await?;
    assert_eq!(&*passing.1.recv().await?, b"f");
    plain.send("g").await?;
    assert_eq!(&*plain_peer.recv().await?.expect("the stream ended too early"), b"g");
    drop((one, other, datagrams, reader, passing, simple));
    for (n, reader) in readers.iter().enumerate() {
        assert!(closes(reader).await, "descriptor {n} was leaked");
    }
    Ok(())
}

/// The stream stays open, and nothing else arrives on it.
pub(crate) async fn descriptors_of_bytes_taken_without_them_are_closed_at_once() -> io::Result<()> {
    let (mut one, mut other) = UnixOptions::new().descriptors(true).pair()?;
    for way in 0..4 {
        let (reader, writer) = pipe()?;
        one.send_with_descriptors("ab", vec![writer.into()]).await?;
        let mut bytes = [0; 2];
        match way {
            0 => assert_eq!(other.recv().await?.as_deref(), Some(&b"ab"[..])),
            1 => {
                other.readable().await?;
                assert_eq!(other.try_recv()?.as_deref(), Some(&b"ab"[..]));
            }
            2 => {
                other.readable().await?;
                assert_eq!(other.try_read(&mut bytes)?, 2);
            }
            _ => assert_eq!(other.read(&mut bytes).await?, 2),
        }
        assert!(closes(&reader).await, "the descriptor stays open after way {way}");
    }
    Ok(())
}

/// Waits until every copy of a pipe's write end is closed. Returns false if that takes too long.
async fn closes(reader: &io::PipeReader) -> bool {
    let closed = async {
        let mut poll = libc::pollfd { fd: reader.as_raw_fd(), events: 0, revents: 0 };
        while poll.revents & libc::POLLHUP == 0 {
            annulus::time::sleep(Duration::from_millis(1)).await;
            // SAFETY: `poll` is one entry and outlives the call.
            unsafe { libc::poll(&raw mut poll, 1, 0) };
        }
    };
    timeout(DEADLINE, closed).await.is_ok()
}

/// If the buffer has no space for a descriptor, the kernel opens none, whether the receive is armed
/// before or after the send.
pub(crate) async fn datagrams_carry_no_descriptors_unless_enabled() -> io::Result<()> {
    for options in [UnixOptions::new(), UnixOptions::new().credentials(true)] {
        let (one, other) = options.datagram_pair()?;
        assert!(crate::common::touch(other.recv()).is_none());
        for count in [30, 1] {
            let (reader, writer) = pipe()?;
            let copies = (1..count).map(|_| Ok(writer.try_clone()?.into()));
            let mut passed = copies.collect::<io::Result<Vec<OwnedFd>>>()?;
            passed.push(writer.into());
            one.send_with_descriptors("no descriptors", passed).await?;
            assert!(closes(&reader).await, "one of {count} descriptors was not closed");
        }
        let message = other.recv_message().await?;
        assert_eq!((&*message.bytes, message.descriptors.len()), (&b"no descriptors"[..], 0));
    }
    Ok(())
}

pub(crate) async fn a_socket_without_an_address_sends() -> io::Result<()> {
    let path = TestPath::new();
    let (server, client) = (UnixDatagram::bind(&path)?, UnixDatagram::unbound()?);
    client.send_to("from no one", path.as_ref()).await?;
    assert_eq!(&*server.recv().await?, b"from no one");
    client.connect(&path)?;
    client.send("again").await?;
    let (bytes, source) = server.recv_from().await?;
    assert!(&*bytes == b"again" && source.is_unnamed());
    Ok(())
}

/// Returns the number of descriptors of this process that refer to the process itself.
fn own_process_descriptors() -> io::Result<usize> {
    let own = format!("Pid:\t{}\n", std::process::id());
    let infos = std::fs::read_dir("/proc/self/fdinfo")?.flatten();
    let refers = |info: &std::fs::DirEntry| {
        std::fs::read_to_string(info.path()).is_ok_and(|text| text.contains(&own))
    };
    Ok(infos.filter(refers).count())
}

/// If the program asks for it through the descriptor, the kernel adds a descriptor of the sender's
/// process to each message.
pub(crate) async fn descriptors_of_processes_are_closed() -> io::Result<()> {
    const SO_PASSPIDFD: i32 = 76;
    let options = UnixOptions::new().descriptors(true);
    let ((mut one, mut other), (sender, receiver)) = (options.pair()?, options.datagram_pair()?);
    for fd in [other.as_raw_fd(), receiver.as_raw_fd()] {
        let on = 1;
        let len = size_of_val(&on) as u32;
        // SAFETY: the option is an integer that outlives the call.
        let set = unsafe {
            libc::setsockopt(fd, libc::SOL_SOCKET, SO_PASSPIDFD, (&raw const on).cast(), len)
        };
        if set != 0 {
            skip!("this kernel passes no descriptors of processes");
            return Ok(());
        }
    }
    for _ in 0..3 {
        one.send("a").await?;
        assert_eq!(other.recv().await?.as_deref(), Some(&b"a"[..]));
        sender.send("b").await?;
        let message = receiver.recv_message().await?;
        assert!(message.descriptors.is_empty() && *message.bytes == *b"b");
    }
    // Other tests may receive some at the same time, but those are closed soon.
    let closed = async {
        while own_process_descriptors()? > 0 {
            annulus::time::sleep(Duration::from_millis(1)).await;
        }
        io::Result::Ok(())
    };
    timeout(DEADLINE, closed).await.expect("descriptors of the process were leaked")
}
