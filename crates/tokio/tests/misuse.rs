//! `enter` and `run` in places where they are refused, runtimes that end in every order, and
//! panics.

mod common;

use annulus::net::{TcpListener, TcpStream, UnixStream};
use annulus::{DriverChoice, Runtime};
use common::{LONG, host, on_both, poll_once};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::Duration;
use tokio::runtime::RuntimeFlavor;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::timeout;

/// Returns the message of the panic with which a call ends.
fn panic_of<T>(call: impl FnOnce() -> T) -> String {
    let panic = catch_unwind(AssertUnwindSafe(|| _ = call())).expect_err("the call did not panic");
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).expect("the panic has no text")
}

#[test]
fn a_thread_has_one_guest_at_a_time() {
    host().block_on(async {
        let entered = annulus_tokio::enter().unwrap();
        let second = annulus_tokio::enter().unwrap_err().to_string();
        assert!(second.contains("running on this thread already"), "{second}");
        // The first runtime is unaffected.
        annulus::time::sleep(Duration::from_millis(1)).await;
        drop(entered);
        drop(annulus_tokio::enter().unwrap());
    });
}

#[test]
fn two_hosts_on_a_thread_cannot_share_a_guest() {
    let (one, other) = (host(), host());
    let _entered = one.block_on(async { annulus_tokio::enter().unwrap() });
    let second = other.block_on(async { annulus_tokio::enter().unwrap_err().to_string() });
    assert!(second.contains("running on this thread already"), "{second}");
    one.block_on(annulus::time::sleep(Duration::from_millis(1)));
}

#[test]
fn enter_outside_tokio_is_refused() {
    let outside = annulus_tokio::enter().unwrap_err().to_string();
    assert!(outside.contains("use annulus_tokio::run"), "{outside}");
    // The thread can still run annulus.
    Runtime::new().unwrap().block_on(async {});
}

#[test]
fn enter_in_a_multi_threaded_runtime_is_refused() {
    let many = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let refused = many.unwrap().block_on(async {
        tokio::spawn(async { annulus_tokio::enter().map(drop).unwrap_err() }).await.unwrap()
    });
    assert_eq!(refused.kind(), io::ErrorKind::Unsupported);
    let text = refused.to_string();
    assert!(text.contains("current_thread") && text.contains("run_each"), "{text}");
}

#[test]
fn run_each_checks_the_thread_count() {
    for count in [0, 100_000] {
        let refused = annulus_tokio::run_each(count, async |_| ()).unwrap_err().to_string();
        assert!(refused.starts_with(&format!("{count} threads: use 1 to ")), "{refused}");
    }
}

#[test]
fn run_inside_a_tokio_runtime_is_an_error() {
    host().block_on(async {
        let nested = annulus_tokio::run(async {}).unwrap_err().to_string();
        assert!(nested.contains("call annulus_tokio::enter there instead"), "{nested}");
        drop(annulus_tokio::enter().unwrap());
    });
}

#[test]
fn enter_inside_an_annulus_runtime_without_tokio_is_an_error() {
    annulus::run(async {
        let nested = annulus_tokio::enter().map(drop).unwrap_err().to_string();
        assert!(nested.contains("replace annulus::run with annulus_tokio::run"), "{nested}");
    });
}

#[test]
fn run_inside_an_annulus_runtime_is_an_error() {
    annulus::run(async {
        let nested = annulus_tokio::run(async {}).unwrap_err().to_string();
        assert!(nested.contains("running on this thread already"), "{nested}");
    });
}

#[test]
fn annulus_block_on_inside_a_guest_is_refused() {
    on_both(async || {
        let nested = Runtime::new()?.try_block_on(async {}).unwrap_err().to_string();
        assert!(nested.contains("spawn a task on it, or use another thread"), "{nested}");
        let text = panic_of(|| annulus::run(async {}));
        assert!(text.contains("running on this thread already"), "{text}");
        annulus::time::sleep(Duration::from_millis(1)).await;
        Ok(())
    });
}

#[test]
fn tokio_without_drivers_panics_with_its_message() {
    let none = tokio::runtime::Builder::new_current_thread().build();
    let without_time = tokio::runtime::Builder::new_current_thread().enable_io().build();
    let without_io = tokio::runtime::Builder::new_current_thread().enable_time().build();
    for (host, named) in
        [(none, "enable_time"), (without_time, "enable_time"), (without_io, "enable_io")]
    {
        let host = host.unwrap();
        let text = panic_of(|| host.block_on(async { annulus_tokio::enter().map(drop) }));
        assert!(text.contains(named), "{text}");
        // The thread can still be entered.
        self::host().block_on(async { drop(annulus_tokio::enter().unwrap()) });
    }
}

#[test]
fn enter_on_a_thread_that_runs_no_tasks_is_reported() {
    host().block_on(async {
        let failed = tokio::task::spawn_blocking(|| {
            let mut entered = annulus_tokio::enter().unwrap();
            tokio::runtime::Handle::current().block_on(entered.failed()).to_string()
        });
        let failed = timeout(LONG, failed).await.expect("the test hangs").unwrap();
        assert!(failed.contains("a thread other than"), "{failed}");
    });
}

/// tokio's tasks continue on whichever thread calls `block_on`, but the guest does not.
#[test]
fn a_guest_fails_if_another_thread_runs_its_host() {
    let host = host();
    let mut entered = host.block_on(async { annulus_tokio::enter().unwrap() });
    std::thread::scope(|scope| {
        // This thread has its own guest on another runtime, which must not be mistaken for the
        // first one.
        scope.spawn(|| {
            let own = self::host();
            let _own = own.block_on(async { annulus_tokio::enter().unwrap() });
            host.block_on(async { tokio::task::yield_now().await });
        });
    });
    let failed =
        host.block_on(async { timeout(LONG, entered.failed()).await.expect("the test hangs") });
    assert!(failed.to_string().contains("run that runtime on no other"), "{failed}");
    drop(entered);
    host.block_on(async { drop(annulus_tokio::enter().unwrap()) });
}

#[test]
fn tokio_may_end_first() {
    let host = host();
    let entered = {
        let _context = host.enter();
        annulus_tokio::enter().unwrap()
    };
    let mut pair = UnixStream::pair().unwrap();
    host.block_on(async { pair.0.send("x").await.unwrap() });
    drop(host);
    // A send that fits into the queue needs no loop.
    let Some(sent) = poll_once(pair.0.send("y")) else {
        panic!("a send is pending although the queue has room")
    };
    sent.unwrap();
    drop(entered);
    let ended = poll_once(pair.0.send("z")).expect("the send is pending").unwrap_err().to_string();
    assert!(ended.contains("ended"), "{ended}");
    Runtime::new().unwrap().block_on(async {});
}

/// When annulus ends, tokio tasks that wait for its I/O get an error, and one that waits for its
/// timer panics.
#[test]
fn tokio_continues_after_its_guest_ends() {
    host().block_on(LocalSet::new().run_until(async {
        let entered = annulus_tokio::enter().unwrap();
        let (mut one, mut other) = UnixStream::pair().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = annulus::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let waiting = [
            spawn_local(async move { other.recv().await.map(drop) }),
            spawn_local(async move { listener.accept().await.map(drop) }),
            spawn_local(async move { socket.recv_from().await.map(drop) }),
        ];
        let timer = spawn_local(annulus::time::sleep(Duration::from_secs(3600)));
        let task = annulus::spawn(std::future::pending::<()>());
        // Lets all tasks start to wait.
        tokio::task::yield_now().await;
        drop(entered);
        for waiting in waiting {
            let ended = timeout(LONG, waiting).await.expect("the test hangs").unwrap().unwrap_err();
            assert!(ended.to_string().contains("ended"), "{ended}");
        }
        let panicked = timeout(LONG, timer).await.expect("the test hangs").unwrap_err();
        assert!(panicked.is_panic(), "the task with a timer did not panic");
        assert!(timeout(LONG, task).await.expect("the test hangs").unwrap_err().is_cancelled());
        assert!(one.send("x").await.is_err());
        assert!(annulus::handle().is_err());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }));
}

#[test]
fn a_guest_may_end_in_one_of_its_own_tasks() {
    host().block_on(LocalSet::new().run_until(async {
        let entered = annulus_tokio::enter().unwrap();
        let ended = Rc::new(tokio::sync::Notify::new());
        let notify = ended.clone();
        _ = annulus::spawn(async move {
            drop(entered);
            notify.notify_one();
        });
        timeout(LONG, ended.notified()).await.expect("the task did not run");
        tokio::task::yield_now().await;
        assert!(annulus::handle().is_err());
    }));
}

#[test]
fn a_panic_ends_only_its_task() {
    on_both(async || {
        let ours = annulus::spawn(async { panic!("ours") }).await.unwrap_err();
        assert!(ours.is_panic());
        let (held, mut other) = UnixStream::pair()?;
        let panics = spawn_local(async move {
            let _held = held;
            panic!("tokio's")
        });
        assert!(other.recv().await?.is_none(), "the stream that the task held is still open");
        assert!(panics.await.unwrap_err().is_panic());
        let (mut one, mut other) = UnixStream::pair()?;
        one.send("both continue").await?;
        assert_eq!(&*other.recv().await?.unwrap(), b"both continue");
        Ok(())
    });
}

#[test]
fn a_panic_of_the_root_future_ends_both_runtimes() {
    let text = panic_of(|| {
        annulus_tokio::run(async {
            let (mut one, _other) = UnixStream::pair().unwrap();
            one.send("x").await.unwrap();
            panic!("as asked");
        })
    });
    assert_eq!(text, "as asked");
    assert_eq!(annulus_tokio::run(async { 7 }).unwrap(), 7);
}

#[test]
fn invalid_settings_are_errors() {
    for (settings, named) in [
        (Runtime::builder().sq_entries(0), "0"),
        (Runtime::builder().driver(DriverChoice::Uring).sq_entries(1 << 20), "1048576"),
    ] {
        let refused = annulus_tokio::run_with(settings, async {}).unwrap_err().to_string();
        assert!(refused.contains(named), "{refused}");
    }
    assert_eq!(annulus_tokio::run(async { 7 }).unwrap(), 7);
}

/// The future waits for annulus, which has been stopped.
#[test]
fn stop_ends_run_with_an_error() {
    let stopped = annulus_tokio::run(async {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        annulus::handle().unwrap().stop();
        listener.accept().await.map(drop)
    });
    assert_eq!(stopped.unwrap_err().kind(), io::ErrorKind::Interrupted);
}

#[test]
fn run_each_gives_each_thread_a_tokio_runtime() {
    let flavors = annulus_tokio::run_each(1, async |_| {
        // The task is not `Send`, and there is no `LocalSet`.
        let shared = Rc::new(7);
        let seven = spawn_local(async move { *shared }).await.unwrap();
        assert_eq!(seven, 7);
        tokio::runtime::Handle::current().runtime_flavor()
    });
    assert!(matches!(flavors.unwrap()[..], [RuntimeFlavor::CurrentThread]));
}

#[test]
fn a_refused_connection_is_an_error_with_its_address() {
    on_both(async || {
        let bound = tokio::net::TcpSocket::new_v4()?;
        bound.bind("127.0.0.1:0".parse().unwrap())?;
        let address = bound.local_addr()?;
        let refused = TcpStream::connect(address).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        assert!(refused.to_string().contains(&address.to_string()), "{refused}");
        Ok(())
    });
}

#[test]
fn a_timer_that_never_fires_does_not_overflow() {
    on_both(async || {
        let day = Duration::from_secs(86_400);
        for far in [Duration::MAX, Duration::from_secs(i64::MAX as u64), 100 * 365 * day, 365 * day]
        {
            let sleeper = annulus::spawn(annulus::time::sleep(far));
            // Other timers are set and fire while the far one waits.
            annulus::time::sleep(Duration::from_millis(2)).await;
            tokio::time::sleep(Duration::from_millis(2)).await;
            assert!(!sleeper.is_finished(), "{far:?}");
        }
        Ok(())
    });
}
