//! A task that makes only calls that are ready at once does not keep other tasks from running.
//! Every `async` function of the crate is either in a loop here, or in the list of those that
//! cannot always be ready, with the reason.

use crate::common::pair;
use annulus::fs::{self, File, FileCache, Policy};
use annulus::io::{AsyncFd, AsyncRecv, Interest};
use annulus::net::{TcpSocket, TcpStream, UdpSocket, UnixDatagram, UnixOptions, UnixStream};
use annulus::process::Command;
use annulus::task::{JoinSet, yield_now};
use annulus::{DriverChoice, Runtime, pipe, spawn};
use annulus_skip::skip;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Creates a future that makes a call this many times.
type Body = fn(u32) -> Pin<Box<dyn Future<Output = io::Result<()>>>>;

/// The loops, each named by the file and the name of the function that it calls, with the code that
/// prepares it.
macro_rules! loops {
    ($($name:literal: { $($prepare:tt)* } $call:expr;)*) => {
        pub(crate) const LOOPS: &[(&str, Body)] = &[$(($name, |times| Box::pin(async move {
            $($prepare)*
            for _ in 0..times {
                _ = $call;
            }
            Ok(())
        }))),*];
    };
}

/// Returns a stream that has received its peer's end.
async fn ended() -> io::Result<TcpStream> {
    let (mut stream, other) = pair().await?;
    drop(other);
    assert!(stream.recv().await?.is_none());
    Ok(stream)
}

/// Returns a stream on which sends fail.
async fn failed() -> io::Result<TcpStream> {
    let (mut stream, other) = pair().await?;
    other.abort();
    while stream.recv().await.is_ok() {}
    while stream.send("refused").await.is_ok() {}
    Ok(stream)
}

loops! {
    "net/tcp.rs recv": { let mut s = ended().await?; } s.recv().await;
    "net/tcp.rs recv, failed": { let mut s = failed().await?; } s.recv().await;
    "net/tcp.rs recv_exact": { let mut s = ended().await?; } s.recv_exact(1).await;
    "net/tcp.rs fill_buf": { let mut s = ended().await?; } s.fill_buf().await;
    "net/tcp.rs fill_buf, with shown bytes": {
        let (mut s, mut other) = pair().await?;
        other.send("shown").await?;
    } s.fill_buf().await;
    "net/tcp.rs fill_at_least": { let mut s = ended().await?; } s.fill_at_least(3).await;
    "net/tcp.rs send_vectored": { let mut s = failed().await?; } s.send_vectored(["x"]).await;
    "net/tcp.rs send": { let mut s = failed().await?; } s.send("x").await;
    "net/tcp.rs send, with no bytes": { let (mut s, _other) = pair().await?; } s.send("").await;
    "net/tcp.rs write": { let mut s = failed().await?; } s.write(b"x").await;
    "net/tcp.rs write, with no bytes": { let (mut s, _other) = pair().await?; } s.write(b"").await;
    "net/tcp.rs write_vectored": { let mut s = failed().await?; } s.write_vectored(&[]).await;
    "net/tcp.rs write_all": { let mut s = failed().await?; } s.write_all(b"x").await;
    "net/tcp.rs write_all, with no bytes": { let mut s = failed().await?; } s.write_all(b"").await;
    "net/tcp.rs drain": { let (mut s, _other) = pair().await?; } s.drain().await;
    "net/tcp.rs shutdown": { let (mut s, _other) = pair().await?; } s.shutdown().await;
    "net/tcp.rs readable": { let s = ended().await?; } s.readable().await;
    "net/tcp.rs writable": { let (s, _other) = pair().await?; } s.writable().await;
    "net/tcp.rs ready": { let (s, _other) = pair().await?; } {
        s.ready(Interest::READABLE | Interest::WRITABLE).await
    };
    "net/udp.rs ready": { let s = UdpSocket::bind("127.0.0.1:0")?; } s.ready(Interest::WRITABLE).await;
    "net/udp.rs peek_from": {
        let s = UdpSocket::bind("127.0.0.1:0")?;
        s.send_to("stays", s.local_addr()?).await?;
    } s.peek_from(&mut [0; 9]).await;
    "net/udp.rs recv_many_from": { let s = UdpSocket::bind("127.0.0.1:0")?; } s.recv_many_from(&mut Vec::new(), 0).await;
    "net/tcp_socket.rs connect": {} {
        TcpSocket::new_v4()?.connect("[::1]:1".parse().expect("an address")).await
    };
    "net/unix/datagram.rs ready": { let s = UnixDatagram::unbound()?; } s.ready(Interest::WRITABLE).await;
    "net/udp.rs writable": { let s = UdpSocket::bind("127.0.0.1:0")?; } s.writable().await;
    "net/udp.rs readable": {
        let s = UdpSocket::bind("127.0.0.1:0")?;
        s.send_to("stays", s.local_addr()?).await?;
    } s.readable().await;
    "net/unix/datagram.rs writable": { let s = annulus::net::UnixDatagram::unbound()?; } s.writable().await;
    "net/unix/datagram.rs readable": {
        let (other, s) = annulus::net::UnixDatagram::pair()?;
        other.send("stays").await?;
    } s.readable().await;
    "io/async_fd.rs ready": { let fd = AsyncFd::new(std::os::unix::net::UnixDatagram::unbound()?)?; } {
        fd.ready(Interest::READABLE | Interest::WRITABLE).await
    };
    "io/async_fd.rs readable": { let fd = AsyncFd::new(std::io::pipe()?.0)?; } fd.readable().await;
    "io/async_fd.rs readable, when always ready": { let fd = AsyncFd::new(std::fs::File::open("/dev/zero")?)?; } {
        fd.readable().await.map(|mut guard| guard.clear_ready())
    };
    "io/async_fd.rs writable": { let fd = AsyncFd::new(std::os::unix::net::UnixDatagram::unbound()?)?; } fd.writable().await;
    "io/async_fd.rs async_io": { let fd = AsyncFd::new(std::io::pipe()?.0)?; } fd.async_io(Interest::READABLE, |_| Ok(())).await;
    "io/async_fd.rs async_io, when it would always block": { let fd = AsyncFd::new(std::io::pipe()?.0)?; } {
        fd.async_io(Interest::READABLE, |_| io::Result::<()>::Err(io::ErrorKind::WouldBlock.into())).await
    };
    "io/async_fd.rs async_io_mut": { let mut fd = AsyncFd::new(std::io::pipe()?.0)?; } fd.async_io_mut(Interest::READABLE, |_| Ok(())).await;
    "tokio read": { let mut s = ended().await?; } tokio::io::AsyncReadExt::read(&mut s, &mut [0; 9]).await;
    "tokio write": { let mut s = failed().await?; } tokio::io::AsyncWriteExt::write(&mut s, b"x").await;
    "tokio flush": { let (mut s, _other) = pair().await?; } tokio::io::AsyncWriteExt::flush(&mut s).await;
    "read": { let mut s = ended().await?; } s.read(&mut [0; 9]).await;
    "pipe recv": { let (_, mut r) = pipe::pipe()?; } r.recv().await;
    "pipe send": {
        let (mut s, r) = pipe::pipe()?;
        drop(r);
    } s.send("x").await;
    "net/connect.rs connect": {} TcpStream::connect("127.0.0.1:1").await;
    "net/connect.rs connect, to an empty address": {} TcpStream::connect("").await;
    "net/resolve.rs lookup_host": {} annulus::net::lookup_host("127.0.0.1:1").await;
    "net/unix/options.rs connect": {} UnixStream::connect("/missing/path").await;
    "net/udp.rs connect": { let s = UdpSocket::bind("127.0.0.1:0")?; } s.connect("127.0.0.1:1").await;
    "net/udp.rs drain": { let s = UdpSocket::bind("127.0.0.1:0")?; } s.drain().await;
    "net/udp.rs poll_drain": { let s = UdpSocket::bind("127.0.0.1:0")?; } poll_fn(|cx| s.poll_drain(cx)).await;
    "net/udp.rs poll_send_ready": { let s = UdpSocket::bind("127.0.0.1:0")?; } poll_fn(|cx| s.poll_send_ready(cx)).await;
    "net/udp.rs send": { let s = UdpSocket::bind("127.0.0.1:0")?; } s.send("no peer").await;
    "net/unix/datagram.rs send_to": { let s = UnixDatagram::pair()?.0; } s.send_to("x", "/missing/path").await;
    "net/unix/datagram.rs send_with_descriptors": { let s = UnixDatagram::pair()?.0; } s.send_with_descriptors("x", vec![]).await;
    "net/unix/datagram.rs drain": { let s = UnixDatagram::pair()?.0; } s.drain().await;
    "net/unix/stream.rs recv_with_descriptors": {
        let (mut s, other) = UnixOptions::new().descriptors(true).pair()?;
        drop(other);
    } s.recv_with_descriptors().await;
    "net/unix/stream.rs send_with_descriptors": {
        let (mut s, other) = UnixOptions::new().descriptors(true).pair()?;
        drop(other);
    } s.send_with_descriptors("x", vec![]).await;
    "io/copy.rs copy": {
        let (mut from, mut to) = (ended().await?, failed().await?);
    } annulus::io::copy(&mut from, &mut to).await;
    "io/copy.rs copy_at_most": { let (mut from, mut to) = pair().await?; } annulus::io::copy_at_most(&mut from, &mut to, 0).await;
    "io/bidirectional.rs copy_bidirectional": {
        let (mut one, mut other) = (ended().await?, failed().await?);
    } annulus::io::copy_bidirectional(&mut one, &mut other).await;
    "process/command.rs status": {} Command::new("/missing/program").status().await;
    "process/command.rs output": {} Command::new("/missing/program").output().await;
    "process/child.rs wait": {
        let mut child = Command::new("true").spawn()?;
        child.wait().await?;
    } child.wait().await;
    "process/child.rs kill": {
        let mut child = Command::new("true").spawn()?;
        child.wait().await?;
    } child.kill().await;
    "runtime/handle.rs stats": { let handle = annulus::handle()?; } handle.stats().await;
    "runtime/handle.rs trace": { let handle = annulus::handle()?; } handle.trace().await;
    "runtime/handle.rs tasks": { let handle = annulus::handle()?; } handle.tasks().await;
    "shards/channel/mod.rs recv": { let (_, mut receiver) = annulus::shards::channel::<()>(1); } receiver.recv().await;
    "shards/channel/mod.rs send": { let (sender, _) = annulus::shards::channel(1); } sender.send(1).await;
    "tasks/mod.rs consume_budget": {} annulus::task::consume_budget().await;
    "tasks/mod.rs yield_now": {} yield_now().await;
    "runtime/spawn.rs spawn": {} spawn(async {}).await;
    "runtime/spawn.rs spawn_blocking": {} annulus::task::spawn_blocking(|| ()).await;
    "runtime/join_set.rs join_next": { let mut set = JoinSet::<()>::new(); } set.join_next().await;
    "runtime/join_set.rs join_all": {} JoinSet::<()>::new().join_all().await;
    "runtime/join_set.rs shutdown": { let mut set = JoinSet::<()>::new(); } set.shutdown().await;
    "time.rs sleep": {} annulus::time::sleep(Duration::ZERO).await;
    "time.rs tick": {
        let long_ago = annulus::time::Instant::now().checked_sub(Duration::from_secs(1)).expect("no instant one second ago");
        let mut ticks = annulus::time::interval_at(long_ago, Duration::from_nanos(1));
        ticks.set_missed_tick_behavior(annulus::time::MissedTickBehavior::Burst);
    } ticks.tick().await;
    "runtime/nop.rs nop": {} annulus::internals::nop().await;
    "uring.rs submit": {} annulus::uring::submit(crate::ring_operations::Nop).await;
    "uring.rs submit, without such an operation": {} {
        annulus::uring::submit(crate::ring_operations::Unknown).await
    };
    "fs/file_cache.rs open": {
        let cache = FileCache::new(annulus::fs::Dir::open("/proc/self").await?);
        cache.open("cmdline").await?;
    } cache.open("cmdline").await;
    "fs/file_cache.rs open, of a missing file": { let cache = FileCache::new(annulus::fs::Dir::open("/proc/self").await?); } cache.open("missing").await;
    "fs/open.rs open": {} File::open("/missing").await;
    "fs/open.rs open, with a zero byte": {} File::open("a\0b").await;
    "fs/transfer.rs read": { let mut file = File::open("/dev/null").await?; } file.read(Vec::with_capacity(9)).await;
    "fs/transfer.rs read, into no memory": { let mut file = File::open("/dev/zero").await?; } file.read(Vec::new()).await;
    "fs/transfer.rs read_at": { let file = File::open("/proc/self/exe").await?; } file.read_at(Vec::new(), 0).await;
    "fs/transfer.rs read_at, above the maximum offset": { let file = File::open("/dev/null").await?; } file.read_at(vec![0], u64::MAX).await;
    "fs/transfer.rs write_at": { let file = File::open("/dev/null").await?; } file.write_at(vec![0], u64::MAX).await;
    "fs/transfer.rs write": { let mut file = File::open("/dev/null").await?; } file.write(vec![0]).await;
    "fs/many.rs read_many_at": { let file = File::open("/dev/null").await?; } file.read_many_at(Vec::<(Vec<u8>, u64)>::new()).await;
    "fs/many.rs write_many_at": { let file = File::open("/dev/null").await?; } file.write_many_at(Vec::<(Vec<u8>, u64)>::new()).await;
    "fs/durable.rs write_durable_at": { let file = File::open("/dev/null").await?; } file.write_durable_at(Vec::new(), 0).await;
    "fs/exact.rs read_exact_at": { let file = File::open("/proc/self/exe").await?; } file.read_exact_at(Vec::new(), 0).await;
    "fs/exact.rs write_all_at": { let file = File::open("/dev/null").await?; } file.write_all_at(Vec::new(), 0).await;
    "fs/exact.rs write_all": { let mut file = File::open("/dev/null").await?; } file.write_all(Vec::new()).await;
    "fs/vectored.rs read_vectored_at": { let file = File::open("/dev/null").await?; } file.read_vectored_at(Vec::<Vec<u8>>::new(), 0).await;
    "fs/vectored.rs write_vectored_at": { let file = File::open("/dev/null").await?; } file.write_vectored_at(Vec::<Vec<u8>>::new(), 0).await;
    "fs/vectored.rs read_vectored": { let mut file = File::open("/dev/null").await?; } file.read_vectored(vec![vec![0; 9]]).await;
    "fs/vectored.rs write_vectored": { let mut file = fs::OpenOptions::new().write(true).open("/dev/null").await?; } file.write_vectored(vec!["x"]).await;
    "fs/dir.rs create": {} fs::DirBuilder::new().create("a\0b").await;
    "fs/dir.rs create, of an existing directory": {} fs::DirBuilder::new().recursive(true).create("/").await;
    "fs/whole.rs try_exists": {} fs::try_exists("/missing").await;
    "fs/file.rs seek": { let mut file = File::open("/dev/null").await?; } file.seek(io::SeekFrom::Start(u64::MAX)).await;
    "fs/file.rs set_len": { let file = File::open("/dev/null").await?; } file.set_len(u64::MAX).await;
    "fs/file.rs allocate": { let file = File::open("/dev/null").await?; } file.allocate(u64::MAX, 9).await;
    "fs/file.rs advise": { let file = File::open("/dev/null").await?; } file.advise(u64::MAX, 9, annulus::fs::Advice::Normal).await;
    "fs/file.rs metadata": { let file = File::open("/dev/null").await?; } file.metadata().await;
    "fs/file.rs alignment": { let file = File::open("/dev/null").await?; } file.alignment().await;
    "fs/file.rs sync_all": { let file = File::open("/proc/self/exe").await?; } file.sync_all().await;
    "fs/whole.rs metadata": {} fs::metadata("a\0b").await;
    "fs/whole.rs remove_file": {} fs::remove_file("a\0b").await;
    "fs/whole.rs create_dir_all": {} fs::create_dir_all("/").await;
    "fs/whole.rs create_dir_all, of an empty path": {} fs::create_dir_all("").await;
    "fs/whole.rs remove_dir_all": {} fs::remove_dir_all("a\0b").await;
    "fs/whole.rs rename": {} fs::rename("a\0b", "c").await;
    "fs/whole.rs hard_link": {} fs::hard_link("a\0b", "c").await;
    "fs/whole.rs symlink": {} fs::symlink("a\0b", "c").await;
    "fs/whole.rs read_link": {} fs::read_link("a\0b").await;
    "fs/whole.rs read_dir": {} fs::read_dir("a\0b").await;
    "fs/whole.rs read": {} fs::read("a\0b").await;
    "fs/whole.rs read_to_end": { let mut file = File::open("/dev/null").await?; } file.read_to_end(Vec::new()).await;
    "fs/whole.rs read_to_string": { let mut file = File::open("/dev/null").await?; } file.read_to_string(String::new()).await;
    "fs/whole.rs write": {} fs::write("a\0b", "").await;
    "fs/whole.rs canonicalize": {} fs::canonicalize("/").await;
    "fs/whole.rs copy": {} fs::copy("a\0b", "c").await;
    "fs/whole.rs set_permissions": {} fs::set_permissions("a\0b", std::os::unix::fs::PermissionsExt::from_mode(0o600)).await;
}

/// `async` functions that need no loop, with the reason.
const OTHERS: &[(&str, &str)] = &[
    ("net/tcp.rs connect", "connects by `net/connect.rs connect`"),
    ("net/unix/stream.rs connect", "connects by `net/unix/options.rs connect`"),
    ("net/unix/options.rs connect_addr", "like connect"),
    ("net/tcp.rs into_parts", "takes the stream"),
    ("net/tcp.rs into_std", "takes the stream"),
    ("net/tcp.rs close", "takes the stream"),
    ("net/listener.rs accept", "limited to the connections that each turn has accepted"),
    ("net/udp.rs peek", "peeks by `net/udp.rs peek_from`"),
    ("net/udp.rs recv", "limited to the datagrams that each turn has received"),
    ("net/unix/datagram.rs send_to_addr", "like send_to"),
    ("net/unix/datagram.rs recv", "limited to the datagrams that each turn has received"),
    ("process/child.rs wait_with_output", "takes the child"),
    ("shards/listener.rs accept", "limited to the connections that each turn has accepted"),
    ("shards/shard.rs move_stream", "takes the stream"),
    ("signal.rs until_terminated", "depends on its future"),
    ("signal.rs recv", "limited to the signals that have arrived"),
    ("io/framed.rs", "uses the calls of its stream"),
    ("io/framing.rs", "uses the calls of its stream"),
    ("io/copy.rs copy_range", "uses file calls"),
    ("fs/copy.rs", "uses file calls"),
    ("fs/dir.rs", "called by `fs/whole.rs`"),
    ("fs/file.rs", "one system call each, which uses the turn's time for file calls"),
    ("fs/read_dir.rs", "one unit per entry"),
    ("fs/stream.rs", "uses file calls"),
    ("fs/whole.rs", "an open or another call on a path"),
];

/// Pairs of files whose types have the same methods on the same kind of handle. A loop over a
/// method of the second type also covers that method of the first.
const SAME_METHODS: &[(&str, &str)] = &[
    ("net/unix/stream.rs", "net/tcp.rs"),
    ("net/split.rs", "net/tcp.rs"),
    ("pipe.rs", "net/tcp.rs"),
    ("net/unix/listener.rs", "net/listener.rs"),
];

/// Runs a loop with other tasks beside it.
fn run(driver: DriverChoice, name: &str, body: Body) -> io::Result<()> {
    Runtime::builder().driver(driver).build()?.block_on(async {
        let task = spawn(body(u32::MAX));
        // Pauses often enough that even a loop whose first calls wait has started.
        for _ in 0..50 {
            annulus::time::sleep(Duration::from_micros(20)).await;
        }
        assert!(!task.is_finished(), "{name} has ended: {:?}", task.await);
        Ok(())
    })
}

#[test]
fn other_tasks_run_during_a_loop_over_any_call() {
    for driver in [DriverChoice::Uring, DriverChoice::Epoll] {
        if let Err(error) = Runtime::builder().driver(driver).build() {
            skip!("not on {driver:?}: {error}");
            continue;
        }
        let mut alone = Vec::new();
        for (name, body) in LOOPS {
            let (done, is_done) = channel();
            // A body that never returns keeps its thread.
            std::thread::spawn(move || done.send(run(driver, name, *body)));
            match is_done.recv_timeout(Duration::from_secs(60)) {
                Ok(outcome) => outcome.expect("no runtime can be built"),
                Err(RecvTimeoutError::Disconnected) => panic!("the loop panicked"),
                Err(RecvTimeoutError::Timeout) => alone.push(name),
            }
        }
        assert!(alone.is_empty(), "on {driver:?} nothing else runs during loops over {alone:#?}");
    }
}

/// All tasks together have one budget per turn for file calls. Which task uses it is left to chance
/// if many wait, so each makes many calls: a budget is about 120 of them.
#[test]
fn tasks_in_loops_over_file_calls_take_turns() {
    const TASKS: usize = 70;
    const CALLS_PER_TASK: u32 = 3000;
    for driver in [DriverChoice::Uring, DriverChoice::Epoll] {
        let builder = Runtime::builder().driver(driver).file_policy(Policy::Inline);
        let mut runtime = match builder.build() {
            Ok(runtime) => runtime,
            Err(error) => {
                skip!("not on {driver:?}: {error}");
                continue;
            }
        };
        for tasks in [3, 5, TASKS] {
            let calls = Rc::new([const { Cell::new(0_u32) }; TASKS]);
            runtime.block_on(async {
                let mut set = JoinSet::new();
                for task in 0..tasks {
                    let calls = calls.clone();
                    set.spawn(async move {
                        while calls.iter().map(Cell::get).sum::<u32>()
                            < CALLS_PER_TASK * tasks as u32
                        {
                            fs::symlink_metadata("/").await?;
                            calls[task].set(calls[task].get() + 1);
                        }
                        io::Result::Ok(())
                    });
                }
                while let Some(ended) = set.join_next().await {
                    ended
                        .expect("a task panicked")
                        .expect("the metadata of the root cannot be read");
                }
            });
            let least = calls[..tasks].iter().min().expect("there are no tasks").get();
            assert!(
                least > CALLS_PER_TASK / 12,
                "{driver}, {tasks} tasks: one made {least} calls of {calls:?}"
            );
        }
    }
}

/// Returns each `pub async fn` in the sources, except those that another type has too.
pub(crate) fn async_functions(root: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    find_async_functions(root, root, &mut found);
    for (file, same) in SAME_METHODS {
        let has_twin = |name: &str| {
            let method = name.strip_prefix(file).and_then(|rest| rest.strip_prefix(' '));
            method.is_some_and(|method| found.contains(&format!("{same} {method}")))
        };
        let twins: Vec<_> = found.iter().filter(|name| has_twin(name)).cloned().collect();
        assert!(!twins.is_empty(), "no method of {file} is in {same}");
        twins.iter().for_each(|name| _ = found.remove(name));
    }
    found
}

fn find_async_functions(dir: &Path, root: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(dir).expect("the directory cannot be read") {
        let path = entry.expect("the entry cannot be read").path();
        if path.is_dir() {
            find_async_functions(&path, root, found);
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("the file cannot be read");
        let file = path.strip_prefix(root).expect("not in the directory").display().to_string();
        for rest in text.split("pub async fn ").skip(1) {
            let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next();
            found.insert(format!("{file} {}", name.unwrap_or_default()));
        }
    }
}

#[test]
fn every_async_function_has_a_loop_or_a_reason_for_none() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = async_functions(&root);
    assert!(found.len() > 100, "{} functions", found.len());
    let is_looped = |name: &str| LOOPS.iter().any(|(of, _)| of.split(',').next() == Some(name));
    let has_reason = |name: &str| OTHERS.iter().any(|(of, _)| name.starts_with(of));
    found.retain(|name| !is_looped(name) && !has_reason(name));
    assert!(found.is_empty(), "neither in LOOPS nor in OTHERS: {found:#?}");
}
