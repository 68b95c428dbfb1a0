//! Invariants 10 and 15: how runtimes and tasks end.

use crate::common;

use annulus::net::{TcpListener, TcpStream};
use annulus::task::{JoinError, yield_now};
use annulus::{Runtime, spawn};
use common::{own_address, pair, pattern, run, touch};
use std::cell::{Cell, RefCell};
use std::io::{self, Read};
use std::panic::catch_unwind;
use std::rc::Rc;

struct CountsDrop(Rc<Cell<u32>>);

impl Drop for CountsDrop {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

#[test]
fn shutdown_drops_every_waiting_task() {
    let dropped = Rc::new(Cell::new(0));
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let (mut client, mut server) = pair().await?;
        let counts = CountsDrop(dropped.clone());
        spawn(async move { _ = (listener.accept().await, counts) });
        let counts = CountsDrop(dropped.clone());
        spawn(async move { _ = (client.recv().await, counts) });
        let counts = CountsDrop(dropped.clone());
        spawn(async move { _ = (server.recv().await, counts) });
        let counts = CountsDrop(dropped.clone());
        spawn(async move { _ = (annulus::time::sleep(std::time::Duration::MAX).await, counts) });
        let counts = CountsDrop(dropped.clone());
        spawn(async move { _ = (std::future::pending::<()>().await, counts) });
        yield_now().await;
        // This task is not polled before the end.
        let counts = CountsDrop(dropped.clone());
        spawn(async move { drop(counts) });
        Ok(())
    });
    assert_eq!(dropped.get(), 6);
}

#[test]
fn halves_that_outlive_the_runtime_return_errors() {
    let (receiving, sending) = run(pair()).0.into_split();
    let error = TcpStream::reunite(receiving, sending).unwrap_err();
    assert!(error.to_string().contains("the runtime has ended"), "{error}");
}

#[test]
fn shutdown_sends_accepted_bytes() {
    // Sends more than the socket buffers hold.
    let big = pattern(32 << 20);
    let expected = big.clone();
    let reader = run(async move {
        let (mut stream, mut peer) = common::half_pair().await?;
        spawn(async move {
            stream.send(big).await?;
            io::Result::Ok(stream)
        });
        yield_now().await;
        Ok(std::thread::spawn(move || {
            let mut got = Vec::new();
            peer.read_to_end(&mut got).map(|_| got)
        }))
    });
    assert!(reader.join().unwrap().unwrap() == expected);
}

#[test]
fn a_stream_that_outlives_its_runtime_returns_errors() {
    let (mut stream, lease) = run(async {
        let (mut client, mut server) = pair().await?;
        server.send("kept").await?;
        let lease = client.recv().await?.unwrap();
        Ok((client, lease))
    });
    assert_eq!(&*lease, b"kept", "the lease lost its memory");
    run(async move {
        let error = stream.recv().await.unwrap_err();
        assert!(error.to_string().contains("the runtime has ended"), "{error}");
        let error = stream.send("late").await.unwrap_err();
        assert!(error.to_string().contains("the runtime has ended"), "{error}");
        Ok(())
    });
    drop(lease);
}

#[test]
fn errors_outside_a_runtime_say_so() {
    let error = TcpListener::bind("127.0.0.1:0").unwrap_err();
    assert!(error.to_string().contains("inside annulus::run"), "{error}");
}

#[test]
fn runtimes_do_not_nest() {
    run(async {
        let error = Runtime::new()?.try_block_on(async {}).unwrap_err();
        assert!(error.to_string().contains("already"), "{error}");
        for (call, panic) in [
            ("annulus::run", catch_unwind(|| annulus::run(async {}))),
            ("Runtime::block_on", catch_unwind(|| Runtime::new().unwrap().block_on(async {}))),
        ] {
            let message = panic.unwrap_err().downcast::<String>().expect("the panic has no text");
            for part in [call, "already", "try_block_on"] {
                assert!(message.contains(part), "no {part} in: {message}");
            }
        }
        // The running runtime is not affected.
        pair().await.map(drop)
    });
}

#[test]
fn runtimes_run_concurrently_and_in_sequence() {
    let mut first = Runtime::new().unwrap();
    let mut second = Runtime::new().unwrap();
    for _ in 0..3 {
        first.block_on(async { pair().await.map(drop) }).unwrap();
        second.block_on(async { pair().await.map(drop) }).unwrap();
    }
    let threads: Vec<_> =
        (0..4).map(|_| std::thread::spawn(|| run(async { pair().await.map(drop) }))).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn a_task_that_panics_ends_alone() {
    run(async {
        let panicking = spawn(async { panic!("on purpose") });
        let fine = spawn(async { 7 });
        let error: JoinError = panicking.await.unwrap_err();
        assert!(error.to_string().contains("on purpose"), "{error}");
        assert_eq!(error.into_panic().downcast_ref::<&str>(), Some(&"on purpose"));
        assert_eq!(fine.await.unwrap(), 7);
        // A panic of a detached task is contained too.
        drop(spawn(async { panic!("on purpose, detached") }));
        yield_now().await;
        pair().await.map(drop)
    });
}

#[test]
fn an_aborted_task_is_dropped() {
    let dropped = Rc::new(Cell::new(0));
    run(async {
        let counts = CountsDrop(dropped.clone());
        let task = spawn(async move {
            std::future::pending::<()>().await;
            drop(counts);
        });
        yield_now().await;
        assert!(!task.is_finished());
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
        yield_now().await;
        assert_eq!(dropped.get(), 1);
        // A finished task keeps its result.
        let done = spawn(async { 1 });
        yield_now().await;
        done.abort();
        assert_eq!(done.await.unwrap(), 1);
        Ok(())
    });
}

#[test]
fn a_runtime_dropped_inside_another_ends_quietly() {
    run(async {
        let mut other = None;
        std::thread::scope(|scope| {
            scope.spawn(|| Runtime::new().unwrap().block_on(async {}));
        });
        other.replace(Runtime::new()?);
        drop(other);
        pair().await.map(drop)
    });
}

#[test]
fn errors_contain_an_unresolvable_or_refused_address() {
    run(async {
        let listener = TcpListener::bind(own_address())?;
        let address = listener.local_addr()?;
        let error = TcpListener::bind(address).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(error.to_string().contains(&address.to_string()), "{error}");
        drop(listener);
        yield_now().await;
        let error = TcpStream::connect(address).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        assert!(error.to_string().contains(&address.to_string()), "{error}");
        Ok(())
    });
}

struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("on purpose, in a drop");
        }
    }
}

#[test]
fn a_task_that_panics_in_its_drop_ends_alone() {
    run(async {
        let aborted = spawn(async {
            let _bomb = Bomb;
            std::future::pending::<()>().await;
        });
        // The task's result is not awaited, and panics when it is dropped.
        drop(spawn(async { Bomb }));
        yield_now().await;
        aborted.abort();
        let error = aborted.await.unwrap_err();
        assert!(error.is_panic() && !error.is_cancelled(), "{error}");
        assert!(error.to_string().contains("on purpose, in a drop"), "{error}");
        // Another task's future is dropped at the end of the runtime.
        spawn(async {
            let _bomb = Bomb;
            std::future::pending::<()>().await;
        });
        yield_now().await;
        pair().await.map(drop)
    });
}

#[test]
fn a_stream_polled_outside_its_running_runtime_returns_an_error() {
    let mut runtime = Runtime::new().unwrap();
    let (mut stream, _peer) = runtime.block_on(pair()).unwrap();
    let outside = touch(stream.recv()).expect("the receive waited").unwrap_err();
    assert!(outside.to_string().contains("block_on of the runtime"), "{outside}");
    let elsewhere = run(async { Ok(touch(stream.recv())) });
    assert!(elsewhere.expect("the receive waited").is_err());
}

#[test]
fn bytes_sent_in_block_on_leave_before_it_returns() {
    let mut runtime = Runtime::new().unwrap();
    let (mut stream, mut peer) = runtime.block_on(common::half_pair()).unwrap();
    runtime.block_on(stream.send("hello")).unwrap();
    let mut got = [0; 5];
    peer.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"hello");
}

#[test]
fn a_runtime_in_a_thread_local_ends_with_its_thread() {
    thread_local!(static RUNTIME: RefCell<Runtime> = RefCell::new(Runtime::new().unwrap()));
    let thread = std::thread::spawn(|| {
        RUNTIME.with_borrow_mut(|runtime| runtime.block_on(yield_now()));
    });
    // A panic while thread-local data is dropped would abort the whole process.
    thread.join().unwrap();
}

#[test]
fn a_runtime_in_a_destructor_of_thread_local_data_is_an_error() {
    struct Last(std::sync::mpsc::Sender<String>);

    impl Drop for Last {
        fn drop(&mut self) {
            let mut runtime = Runtime::new().unwrap();
            let error = runtime.try_block_on(yield_now()).unwrap_err();
            self.0.send(error.to_string()).unwrap();
        }
    }

    thread_local!(static LAST: RefCell<Option<Last>> = const { RefCell::new(None) });
    let (sender, texts) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(|| {
        // Set before the crate's own thread-local data, and therefore dropped after it.
        LAST.set(Some(Last(sender)));
        annulus::run(yield_now());
    });
    thread.join().unwrap();
    let text = texts.recv().unwrap();
    assert!(text.contains("this thread is ending"), "{text}");
}
