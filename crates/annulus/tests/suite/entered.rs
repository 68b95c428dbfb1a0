//! A runtime that is entered before it runs.

use crate::common::touch;
use annulus::net::{SendGroup, SlowMembers, TcpListener, TcpStream, UdpSocket, UnixStream};
use annulus::{DriverChoice, EnterGuard, Runtime};
use annulus_skip::skip;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

fn on_each(body: impl Fn(Runtime)) {
    for driver in [DriverChoice::Uring, DriverChoice::Epoll] {
        match Runtime::builder().driver(driver).build() {
            Ok(runtime) => body(runtime),
            Err(error) => skip!("not on {driver:?}: {error}"),
        }
    }
}

#[test]
fn sockets_and_tasks_are_created_before_the_loop_runs() {
    on_each(|mut runtime| {
        assert!(TcpListener::bind("127.0.0.1:0").is_err());
        let entered = runtime.enter();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = annulus::spawn(async move { listener.accept().await.map(|(_, peer)| peer) });
        let sleep = annulus::time::sleep(Duration::from_millis(1));
        // `block_on` works within the guard and without it.
        let client = runtime.block_on(async {
            sleep.await;
            TcpStream::connect(address).await.unwrap()
        });
        assert!(annulus::turns().is_some(), "the runtime is no longer entered");
        drop(entered);
        assert!(annulus::turns().is_none(), "the runtime is still entered");
        let peer = runtime.block_on(server).unwrap().unwrap();
        assert_eq!(peer, runtime.block_on(async { client.local_addr().unwrap() }));
        assert!(TcpListener::bind("127.0.0.1:0").is_err());
    });
}

#[test]
fn waits_outside_of_the_loop_are_errors() {
    on_each(|runtime| {
        let _entered = runtime.enter();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let error = touch(socket.recv()).expect("it waits for a loop that does not run");
        assert!(error.is_err());
    });
}

#[test]
fn two_runtimes_are_entered_one_within_the_other() {
    on_each(|mut one| {
        let mut other = Runtime::new().unwrap();
        let outer = one.enter();
        let in_one = annulus::spawn(async { 1 });
        let inner = other.enter();
        let in_other = annulus::spawn(async { 2 });
        drop(inner);
        let also_in_one = annulus::spawn(async { 3 });
        // A runtime may run within the guard of another.
        assert_eq!(other.block_on(in_other).unwrap(), 2);
        let again_in_one = annulus::spawn(async { 4 });
        drop(outer);
        let sum = async {
            in_one.await.unwrap() + also_in_one.await.unwrap() + again_in_one.await.unwrap()
        };
        assert_eq!(one.block_on(sum), 8);
    });
}

#[test]
fn a_runtime_may_end_before_its_guard() {
    on_each(|runtime| {
        let entered = runtime.enter();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        drop(runtime);
        assert!(UdpSocket::bind("127.0.0.1:0").is_err());
        assert!(socket.local_addr().is_err());
        drop(entered);
        // The thread can run another one.
        assert_eq!(annulus::run(async { 1 }), 1);
    });
}

#[test]
fn misuse_panics() {
    on_each(|mut runtime| {
        let other = Runtime::new().unwrap();
        runtime.block_on(async {
            let entered = catch_unwind(AssertUnwindSafe(|| drop(other.enter())));
            assert!(entered.is_err(), "entered while another runtime runs");
        });
        let (outer, inner) = (runtime.enter(), other.enter());
        assert!(catch_unwind(AssertUnwindSafe(|| drop(outer))).is_err());
        drop(inner);
    });
}

thread_local! {
    static KEPT: Cell<Option<EnterGuard>> = const { Cell::new(None) };
}

/// A panic in a destructor of thread-local data would abort the process.
#[test]
fn a_thread_may_end_with_its_guard() {
    let thread = std::thread::spawn(|| {
        // Initialised before the runtime's own thread-local data, so destroyed after it.
        KEPT.set(None);
        KEPT.set(Some(Runtime::new().unwrap().enter()));
    });
    thread.join().unwrap();
}

/// The task of a group needs a runtime to be spawned on, and its messages need a loop to leave.
#[test]
fn messages_to_a_group_between_two_calls_of_block_on_arrive() {
    on_each(|mut runtime| {
        let group = SendGroup::new(SlowMembers::Disconnect);
        let (half, mut peer) = runtime.block_on(async {
            let (stream, peer) = UnixStream::pair().unwrap();
            let (_receiving, sending) = stream.into_split();
            group.add(&sending);
            (sending, peer)
        });
        group.send("first,".as_bytes().to_vec());
        let big = vec![7; 64 << 10];
        group.send(big.clone());
        runtime.block_on(async { group.send("in the loop,".as_bytes().to_vec()) });
        group.send("after it,".as_bytes().to_vec());
        assert_eq!(group.take_dropped().len(), 0, "a member was dropped");
        drop(group);
        let bytes = runtime.block_on(async {
            drop(half);
            let mut bytes = Vec::new();
            while let Some(lease) = peer.recv().await.unwrap() {
                bytes.extend_from_slice(&lease);
            }
            bytes
        });
        assert!(bytes == [b"first,", &*big, b"in the loop,after it,"].concat());
    });
}
