//! With a task budget of 1, every asynchronous function finishes, although an operation that needs
//! two units never gets both in one poll.

use crate::common::pair;
use crate::fairness::{LOOPS, async_functions};
use annulus::fs::{self, Dir, File, Lock, OpenOptions};
use annulus::io::{AsyncRecv, AsyncSend, FromTokio};
use annulus::net::{
    ListenOptions, TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixListener, UnixStream,
};
use annulus::process::{Command, Stdio};
use annulus::shards::{ShardedListener, Shards, Spread, channel_to_all};
use annulus::time::timeout;
use annulus::{Builder, DriverChoice, Runtime, spawn};
use annulus_skip::skip;
use std::collections::BTreeSet;
use std::future::Future;
use std::io::{self, SeekFrom};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;

/// Number of calls of each function in a row.
const CALLS: u32 = 3;
/// Time limit that turns a hang into a failure. Timers fire even while a task spins.
const DEADLINE: Duration = Duration::from_secs(60);

fn builder(driver: DriverChoice) -> Builder {
    Runtime::builder().driver(driver).task_budget(1)
}

/// Returns the drivers that work on this machine.
fn drivers() -> Vec<DriverChoice> {
    let all = [DriverChoice::Uring, DriverChoice::Epoll];
    let drivers: Vec<_> =
        all.into_iter().filter(|driver| builder(*driver).build().is_ok()).collect();
    if drivers.len() < 2 {
        skip!("io_uring is blocked here");
    }
    drivers
}

/// A loop whose first call never returns, whatever the budget.
const NEVER_READY: &str = "io/async_fd.rs async_io, when it would always block";

/// A directory for this test and driver, removed with this value.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> io::Result<Self> {
        let text = format!("annulus-one-unit-{:?}", std::thread::current().id());
        let path = std::env::temp_dir().join(format!("{text}-{}", std::process::id()));
        _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).map(|()| Self(path))
    }

    fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

type Body = fn() -> Pin<Box<dyn Future<Output = io::Result<()>>>>;

/// Functions that no loop in `fairness` calls: files, with the functions that each body covers.
const BODIES: &[(&str, Body)] = &[
    (
        "io/framing.rs: next_line; io/recv.rs: recv recv_exact recv_until read_frame read read_exact read_until read_line \
         read_to_end skip_until fill_at_least fill_buf",
        || Box::pin(receive_every_way()),
    ),
    ("io/send.rs: send write write_vectored write_all flush shutdown", || {
        Box::pin(send_every_way())
    }),
    (
        "net/tcp.rs: connect connect_timeout close into_parts into_std; net/listener.rs: accept",
        || Box::pin(connect_and_leave()),
    ),
    ("net/unix/options.rs: connect_addr; net/unix/stream.rs: connect connect_addr", || {
        Box::pin(connect_by_path())
    }),
    (
        "net/udp.rs: recv recv_datagram peek peek_sender recv_many_from; net/unix/datagram.rs: recv recv_from recv_message send_to_addr",
        || Box::pin(datagrams()),
    ),
    (
        "fs/dir.rs: create_dir create_dir_all hard_link metadata open open_dir open_file read_dir read_link remove_dir \
         remove_dir_all remove_file rename rename_to set_permissions symlink symlink_metadata try_exists; \
         fs/read_dir.rs: metadata next_entry; fs/whole.rs: create_dir read_to_string remove_dir symlink_metadata",
        || Box::pin(directories()),
    ),
    (
        "fs/file.rs: close create lock open set_permissions sync_data try_lock unlock; \
         fs/stream.rs: into_file seek; fs/copy.rs: copy_to; io/copy.rs: copy_range",
        || Box::pin(files()),
    ),
    ("process/child.rs: wait_with_output", || Box::pin(processes())),
];

/// Signals belong to the whole process, so one test raises all of them: see
/// `time::signals_are_awaited`.
const OF_SIGNALS: &str = "signal.rs: recv until_terminated";

/// Functions that need several runtimes: see [`shards_complete_all_operations`].
const OF_SHARDS: &str =
    "shards/listener.rs: accept; shards/shard.rs: move_stream; shards/channel/mod.rs: send";

fn length(bytes: &[u8]) -> io::Result<Option<usize>> {
    Ok(bytes.first_chunk().map(|length| 2 + usize::from(u16::from_be_bytes(*length))))
}

/// Receives `0 5 hello`, part of the next frame, and then the end.
async fn receive_from(mut from: impl AsyncRecv) -> io::Result<()> {
    assert_eq!(from.read_frame(99, length).await?.as_deref(), Some(&b"\0\x05hello"[..]));
    assert!(from.fill_at_least(2).await?.starts_with(b"12"));
    assert!(from.fill_buf().await?.starts_with(b"12"));
    assert_eq!(&*from.recv_exact(2).await?, b"12");
    assert_eq!(from.recv_until(b'\n', 99).await?.as_deref(), Some(&b"345\n"[..]));
    let (mut buf, mut line, mut some) = (Vec::new(), String::new(), [0; 2]);
    assert_eq!(from.read_until(b'\n', &mut buf, 99).await?, 4);
    assert_eq!(from.read_line(&mut line, 99).await?, 4);
    assert_eq!(from.skip_until(b'\n').await?, 4);
    assert_eq!((&buf[..], &line[..]), (&b"abc\n"[..], "def\n"));
    assert_eq!((&mut from).lines(99).next_line().await?.as_deref(), Some("jkl"));
    from.read_exact(&mut some).await?;
    assert_eq!((&some, from.read(&mut [0; 1]).await?), (b"\0\x30", 1));
    let error = from.read_frame(99, |_| Ok(Some(50))).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    assert_eq!(from.recv().await?.as_deref(), Some(&b"rest"[..]));
    for _ in 0..CALLS {
        assert!(from.recv().await?.is_none());
        assert_eq!(from.read_to_end(&mut buf, 99).await?, 0);
        assert!(from.read_frame(99, length).await?.is_none());
        assert!(from.recv_until(b'\n', 99).await?.is_none());
    }
    Ok(())
}

const SENT: &str = "\0\x05hello12345\nabc\ndef\nghi\njkl\n\0\x30?rest";

/// Returns one end of a Unix stream whose other end has sent everything and ended.
async fn sent() -> io::Result<UnixStream> {
    let (mut client, server) = UnixStream::pair()?;
    client.send(SENT).await?;
    client.shutdown().await?;
    Ok(server)
}

async fn receive_every_way() -> io::Result<()> {
    let (mut client, server) = pair().await?;
    client.send(SENT).await?;
    drop(client);
    receive_from(server).await?;
    receive_from(sent().await?).await?;
    receive_from(sent().await?.into_split().0).await?;
    receive_from(FromTokio::new(sent().await?)).await?;
    receive_from(SENT.as_bytes()).await?;
    let scratch = Scratch::new()?;
    std::fs::write(scratch.join("a"), SENT)?;
    receive_from(File::open(scratch.join("a")).await?.into_stream()).await?;
    let mut child = Command::new("printf").arg("a\nb\n").stdout(Stdio::piped()).spawn()?;
    let mut lines = child.stdout.take().expect("not piped").lines(99);
    assert_eq!(lines.next_line().await?.as_deref(), Some("a"));
    assert_eq!(lines.next_line().await?.as_deref(), Some("b"));
    assert_eq!(lines.next_line().await?, None);
    Ok(())
}

async fn send_to(to: &mut impl AsyncSend) -> io::Result<()> {
    for _ in 0..CALLS {
        to.send("a").await?;
        to.write(b"b").await?;
        to.write_vectored(&[io::IoSlice::new(b"c")]).await?;
        to.write_all(b"def").await?;
        to.flush().await?;
    }
    to.shutdown().await
}

async fn send_every_way() -> io::Result<()> {
    let scratch = Scratch::new()?;
    let mut file = File::create(scratch.join("a")).await?.into_stream();
    send_to(&mut file).await?;
    assert_eq!(std::fs::read(scratch.join("a"))?, b"abcdef".repeat(3));
    let (mut client, mut server) = UnixStream::pair()?;
    send_to(&mut client).await?;
    assert_eq!(&*server.recv_exact(18).await?, &b"abcdef".repeat(3)[..]);
    let (mut client, mut server) = pair().await?;
    send_to(&mut FromTokio::new(&mut client)).await?;
    assert_eq!(&*server.recv_exact(18).await?, &b"abcdef".repeat(3)[..]);
    Ok(())
}

async fn connect_and_leave() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    for _ in 0..CALLS {
        let mut client = TcpStream::connect(("localhost", port)).await?;
        let (mut server, _) = listener.accept().await?;
        client.send("x").await?;
        client.close().await?;
        assert_eq!(server.recv().await?.as_deref(), Some(&b"x"[..]));
        let client = TcpStream::connect_timeout(listener.local_addr()?, DEADLINE).await?;
        drop(client.into_parts().await?);
        drop(listener.accept().await?.0.into_std().await?);
    }
    Ok(())
}

async fn connect_by_path() -> io::Result<()> {
    let scratch = Scratch::new()?;
    let listener = UnixListener::bind(scratch.join("s"))?;
    for _ in 0..CALLS {
        drop(UnixStream::connect(scratch.join("s")).await?);
        drop(UnixStream::connect_addr(&listener.local_addr()?).await?);
        listener.accept().await?;
        listener.accept().await?;
    }
    Ok(())
}

async fn datagrams() -> io::Result<()> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    let scratch = Scratch::new()?;
    let unix = UnixDatagram::bind(scratch.join("d"))?;
    for _ in 0..CALLS {
        for _ in 0..2 {
            socket.send_to("x", socket.local_addr()?).await?;
        }
        assert_eq!(socket.peek(&mut [0; 9]).await?, 1);
        assert_eq!(socket.peek_sender().await?, socket.local_addr()?);
        assert_eq!(&*socket.recv().await?, b"x");
        assert_eq!(&*socket.recv_datagram().await?.bytes, b"x");
        for _ in 0..3 {
            unix.send_to_addr("y", &unix.local_addr()?).await?;
        }
        assert_eq!(&*unix.recv().await?, b"y");
        assert_eq!(&*unix.recv_from().await?.0, b"y");
        assert_eq!(&*unix.recv_message().await?.bytes, b"y");
    }
    Ok(())
}

async fn directories() -> io::Result<()> {
    let scratch = Scratch::new()?;
    let root = Dir::open(&scratch.0).await?;
    for _ in 0..CALLS {
        root.create_dir("a").await?;
        root.create_dir_all("a/b/c").await?;
        let options = OpenOptions::new().write(true).create(true).clone();
        root.open_file("a/f", &options).await?.write_all("text").await.0?;
        root.hard_link("a/f", "a/h").await?;
        root.symlink("f", "a/l").await?;
        assert_eq!(root.read_link("a/l").await?, Path::new("f"));
        assert_eq!(root.metadata("a/l").await?.len(), 4);
        assert!(root.symlink_metadata("a/l").await?.len() != 4);
        root.set_permissions("a/f", PermissionsExt::from_mode(0o600)).await?;
        let inner = root.open_dir("a").await?;
        inner.rename("h", "i").await?;
        inner.rename_to("i", &root, "i").await?;
        let (mut entries, mut count) = (inner.read_dir(".").await?, 0);
        while let Some(entry) = entries.next_entry().await? {
            entry.metadata().await?;
            count += 1;
        }
        assert_eq!(count, 3, "not exactly the entries b, f and l");
        assert!(root.try_exists("i").await?);
        root.remove_file("i").await?;
        root.remove_dir("a/b/c").await?;
        assert_eq!(fs::read_to_string(scratch.join("a/f")).await?, "text");
        fs::symlink_metadata(scratch.join("a/f")).await?;
        root.remove_dir_all("a").await?;
        fs::create_dir(scratch.join("z")).await?;
        fs::remove_dir(scratch.join("z")).await?;
    }
    Ok(())
}

async fn files() -> io::Result<()> {
    let scratch = Scratch::new()?;
    let (a, b) = (scratch.join("a"), scratch.join("b"));
    for _ in 0..CALLS {
        let mut file = File::create(&a).await?;
        file.write_all("some text").await.0?;
        file.sync_data().await?;
        file.set_permissions(PermissionsExt::from_mode(0o600)).await?;
        file.lock(Lock::Exclusive).await?;
        file.unlock().await?;
        file.try_lock(Lock::Shared).await?;
        file.close().await?;
        let file = File::open(&a).await?;
        assert_eq!(file.copy_to(&File::create(&b).await?).await?, 9);
        let (mut client, mut server) = pair().await?;
        assert_eq!(annulus::io::copy_range(&file, 2..6, &mut client).await?, 4);
        assert_eq!(&*server.recv_exact(4).await?, b"me t");
        let mut stream = file.into_stream();
        stream.fill_buf().await?;
        assert_eq!(stream.seek(SeekFrom::Current(5)).await?, 5);
        assert_eq!(stream.recv().await?.as_deref(), Some(&b"text"[..]));
        stream.into_file().await?;
    }
    Ok(())
}

async fn processes() -> io::Result<()> {
    let mut command = Command::new("sh");
    command.args(["-c", "echo out; echo err >&2"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = command.spawn()?.wait_with_output().await?;
    assert_eq!((&output.stdout[..], &output.stderr[..]), (&b"out\n"[..], &b"err\n"[..]));
    Ok(())
}

#[test]
fn every_body_completes_with_a_budget_of_one() {
    let drivers = drivers();
    assert!(drivers.contains(&DriverChoice::Epoll));
    for driver in drivers {
        for (covers, body) in BODIES {
            let mut runtime = builder(driver).build().unwrap();
            let ended = runtime.block_on(async { timeout(DEADLINE, body()).await });
            ended.unwrap_or_else(|_| panic!("{covers}: not done")).expect(covers);
        }
    }
}

#[test]
fn every_loop_completes_its_calls_with_a_budget_of_one() {
    for driver in drivers() {
        for (name, body) in LOOPS.iter().filter(|(name, _)| *name != NEVER_READY) {
            let mut runtime = builder(driver).build().unwrap();
            let ended = runtime.block_on(async { timeout(DEADLINE, body(CALLS)).await });
            ended.unwrap_or_else(|_| panic!("{name}: not done")).expect(name);
        }
    }
}

#[test]
fn shards_complete_all_operations() {
    for driver in drivers() {
        let listener = ListenOptions::new();
        let listener =
            ShardedListener::bind("127.0.0.1:0", &listener, 2, Spread::LeastConnections).unwrap();
        let (to_all, inboxes) = channel_to_all(2, 1);
        let shards = Shards::new(2).runtime(move |_| builder(driver));
        let done = shards.run_with(inboxes, async |shard, mut inbox| {
            let mut mine = listener.open(&shard)?;
            if shard.index() == 1 {
                while let Some((mut stream, _)) = mine.accept().await? {
                    stream.send("hello").await?;
                }
                return Ok(inbox.recv().await);
            }
            let mut client = TcpStream::connect(listener.local_addr()).await?;
            let accepting = spawn(async move { mine.accept().await.map(drop) });
            assert_eq!(&*client.recv_exact(5).await?, b"hello");
            accepting.abort();
            _ = accepting.await;
            let (mut near, far) = pair().await?;
            let serve = async |mut stream: TcpStream| stream.send("moved").await;
            shard.move_stream(far, 1, serve).await?.await.expect("the task panicked")?;
            assert_eq!(&*near.recv_exact(5).await?, b"moved");
            to_all.send(7).await.expect("a shard has no receiver");
            io::Result::Ok(inbox.recv().await)
        });
        assert_eq!(done.unwrap(), [Some(7), Some(7)]);
    }
}

/// Finds functions of traits, which `async_functions` does not.
fn trait_functions(file: &str, found: &mut BTreeSet<String>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(file);
    let text = std::fs::read_to_string(path).expect("the source cannot be read");
    for rest in text.split("\n    async fn ").skip(1) {
        found.insert(format!("{file} {}", rest.split('(').next().unwrap_or_default()));
    }
}

#[test]
fn every_async_function_runs_with_a_budget_of_one() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = async_functions(&root);
    ["io/recv.rs", "io/send.rs"].iter().for_each(|file| trait_functions(file, &mut found));
    let lists = BODIES.iter().map(|(covers, _)| *covers).chain([OF_SIGNALS, OF_SHARDS]);
    let mut covered: BTreeSet<String> = LOOPS.iter().map(|(name, _)| loop_name(name)).collect();
    for part in lists.flat_map(|list| list.split("; ")) {
        let (file, names) = part.split_once(": ").expect("no file and functions");
        covered.extend(names.split_whitespace().map(|name| format!("{file} {name}")));
    }
    let missing: Vec<_> = found.difference(&covered).collect();
    assert!(
        found.len() > 130 && missing.is_empty(),
        "functions without a body, of {}: {missing:#?}",
        found.len()
    );
}

fn loop_name(name: &str) -> String {
    name.split(',').next().unwrap_or(name).to_owned()
}
