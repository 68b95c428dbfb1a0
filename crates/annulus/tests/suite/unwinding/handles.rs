//! Handles that foreign code drops while the runtime ends, when their slots are gone or belong to
//! another handle.

use crate::common::pair;
use crate::unwinding::foreign::{OnDrop, poll_with, waker_of};
use crate::unwinding::mode::{Stage, everywhere, nothing_left};
use annulus::net::{TcpListener, TcpStream, UdpSocket};
use std::cell::RefCell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;

/// The result of the action in a waker's drop, or `None` if it has not run.
type Outcome = Rc<RefCell<Option<Result<(), String>>>>;

/// Returns a waker whose drop runs an action once, and the place where the action's result is
/// stored.
fn doing(act: impl FnOnce() -> Result<(), String> + 'static) -> (std::task::Waker, Outcome) {
    let outcome = Outcome::default();
    let (result, mut act) = (outcome.clone(), Some(act));
    let waker = waker_of(OnDrop(move || {
        let act = act.take().expect("the value was dropped twice");
        let ended = catch_unwind(AssertUnwindSafe(act));
        *result.borrow_mut() = Some(ended.unwrap_or_else(|_| Err("it panicked".into())));
    }));
    (waker, outcome)
}

/// Ends a runtime with a stream that outlives it and keeps a waker whose drop runs the action.
fn as_it_ends<F>(mut stage: Stage, act: impl AsyncFnOnce() -> io::Result<F>)
where
    F: FnOnce() -> Result<(), String> + 'static,
{
    let (kept, outcome) = stage.play(async {
        let (mut stream, peer) = pair().await?;
        let (waker, outcome) = doing(act().await?);
        assert!(poll_with(pin!(stream.recv()), &waker).is_pending());
        Ok(((stream, peer), outcome))
    });
    let (runtime, sim) = stage.into_parts();
    drop(runtime);
    let ended = outcome.take().expect("the waker was not dropped");
    assert_eq!(ended, Ok(()));
    drop(kept);
    nothing_left(sim.as_deref());
}

#[test]
fn a_handle_dropped_while_the_runtime_ends_finds_it_ended() {
    everywhere(|stage| {
        as_it_ends(stage, async || {
            let (stream, peer) = pair().await?;
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let socket = UdpSocket::bind("127.0.0.1:0")?;
            Ok(move || {
                drop((stream, listener, socket));
                peer.abort();
                Ok(())
            })
        });
    });
}

#[test]
fn a_handle_dropped_while_the_runtime_ends_closes_no_other_descriptor() {
    everywhere(|stage| {
        as_it_ends(stage, async || {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            Ok(move || {
                // Registering the new listener fails. Otherwise, it could get the slot of the
                // listener that is dropped next.
                let newer = TcpListener::bind("127.0.0.1:0");
                drop(listener);
                match newer.map(|newer| newer.local_addr()) {
                    Err(error) if error.to_string().contains("has ended") => Ok(()),
                    other => Err(format!("{other:?}")),
                }
            })
        });
    });
}

#[test]
fn nothing_starts_while_the_runtime_ends() {
    everywhere(|stage| {
        as_it_ends(stage, async || {
            let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
            let waker = std::task::Waker::noop();
            Ok(move || match poll_with(pin!(TcpStream::connect(address)), waker) {
                std::task::Poll::Ready(Err(error)) if error.to_string().contains("ended") => Ok(()),
                other => Err(format!("{:?}", other.map(|outcome| outcome.map(drop)))),
            })
        });
    });
}
