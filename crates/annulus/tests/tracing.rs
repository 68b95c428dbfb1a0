//! The events that a `tracing` subscriber receives: a span per task, and events of connections and
//! of the loop.

mod common;

use annulus::net::TcpStream;
use annulus::task::yield_now;
use annulus::time::Instant;
use annulus::{Runtime, spawn};
use common::{own_address, pair, run, run_on};
use std::fmt::{Debug, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::with_default;
use tracing::{Event, Metadata, Subscriber};

/// Records everything, one line each.
#[derive(Clone, Default)]
struct Notes {
    lines: Arc<Mutex<Vec<String>>>,
    spans: Arc<AtomicU64>,
}

impl Notes {
    fn note(&self, line: String) {
        self.lines.lock().unwrap().push(line);
    }

    /// Returns the lines that contain this text.
    fn having(&self, part: &str) -> Vec<String> {
        let lines = self.lines.lock().unwrap();
        lines.iter().filter(|line| line.contains(part)).cloned().collect()
    }
}

struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {field}={value:?}").unwrap();
    }
}

impl Subscriber for Notes {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("annulus") || metadata.target() == "tokio::task::waker"
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let id = 1 + self.spans.fetch_add(1, Ordering::Relaxed);
        let mut fields = Fields(String::new());
        attributes.record(&mut fields);
        assert!(attributes.is_root(), "the span of a task has a parent");
        self.note(format!("span {id}:{}", fields.0));
        Id::from_u64(id)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields(String::new());
        event.record(&mut fields);
        self.note(format!("{}{}", event.metadata().level(), fields.0));
    }

    fn enter(&self, id: &Id) {
        self.note(format!("enter {};", id.into_u64()));
    }

    fn exit(&self, id: &Id) {
        self.note(format!("exit {};", id.into_u64()));
    }

    fn try_close(&self, id: Id) -> bool {
        self.note(format!("close {};", id.into_u64()));
        true
    }
}

#[test]
fn each_poll_and_the_drop_of_a_task_are_in_its_span() {
    let notes = Notes::default();
    let line = line!() + 3;
    with_default(notes.clone(), || {
        run(async {
            let task = spawn(async {
                yield_now().await;
            });
            task.await.expect("the task panicked");
            Ok(())
        });
    });
    let [span] = &notes.having("span ")[..] else { panic!("{:?}", notes.having("")) };
    assert!(
        span.starts_with("span 1: kind=task loc.file=\"")
            && span.contains(&format!("tracing.rs\" loc.line={line} loc.col="))
    );
    // The span is entered for two polls and for the drop.
    assert_eq!((notes.having("enter 1;").len(), notes.having("exit 1;").len()), (3, 3));
    assert_eq!(notes.having("close 1;").len(), 1);
    // The root future is not a task, so the yield is the only wake of a task.
    assert_eq!(notes.having("waker."), ["TRACE op=\"waker.wake_by_ref\" task.id=1"]);
}

#[test]
fn connections_are_traced_from_start_to_end() {
    let notes = Notes::default();
    with_default(notes.clone(), || {
        run(async {
            let (client, server) = pair().await?;
            drop((client, server));
            let closed = std::net::TcpListener::bind(own_address())?.local_addr()?;
            TcpStream::connect(closed).await.map(drop).unwrap_err();
            Ok(())
        });
    });
    let count = |part| notes.having(part).len();
    assert_eq!((count("accepted a connection"), count("connected")), (1, 1));
    assert_eq!((count("a stream is closed"), count("a connection has failed")), (2, 1));
    assert!(count("TRACE") == 5 + count("waker."), "{:?}", notes.having(""));
}

#[test]
fn a_poll_that_blocks_the_loop_is_a_warning() {
    let notes = Notes::default();
    let limit = Duration::from_millis(2);
    let line = line!() + 3;
    with_default(notes.clone(), || {
        run_on(Runtime::builder().slow_poll(Some(limit)), async move {
            let task = spawn(async move {
                let began = Instant::now();
                while began.elapsed() < limit {}
            });
            task.await.expect("the task panicked");
            Ok(())
        });
    });
    let warnings = notes.having("WARN");
    let place = format!("tracing.rs:{line} held the loop for ");
    assert!(warnings.iter().any(|warning| warning.contains(&place)), "{warnings:?}");
}

struct Panics;

impl Subscriber for Panics {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        panic!("a subscriber's panic");
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        panic!("a subscriber's panic");
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn a_panicking_subscriber_ends_nothing() {
    with_default(Panics, || {
        run(async {
            let task = spawn(async {
                let (mut client, mut server) = pair().await?;
                client.send("hello").await?;
                server.recv().await.map(|lease| lease.map(|lease| lease.len()))
            });
            assert_eq!(task.await.expect("the task panicked")?, Some(5));
            Ok(())
        });
    });
}
