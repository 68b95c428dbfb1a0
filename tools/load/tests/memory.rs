//! The memory of a connection of the load: allocated bytes, waiting and while replies come to thousands at once.
#![allow(unsafe_code)]

use annulus::Runtime;
use annulus::net::TcpListener;
use annulus_load::{Http, Plan, Protocol, Streams, run};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicIsize, Ordering::Relaxed};
use std::sync::mpsc;
use std::time::Duration;

/// Bytes that a client with its connection may take: its task, exchange and due times, the stream's slot, and a share of the lists
/// of the thread.
const MAX_BYTES_PER_CONNECTION: isize = 1100;
/// Clients of two runs: what both have in common is not a connection's. Both are too many for the runtime's own buffers. So far
/// apart that what grows with the time of a run, which is longer on a busy machine, is little of a connection's share.
const CLIENT_COUNTS: [usize; 2] = [1100, 4000];
/// Descriptors of both ends, and of all else.
const NEEDED_DESCRIPTORS: u64 = 2 * CLIENT_COUNTS[1] as u64 + 100;

/// Bytes allocated and not freed, and the most of them, but for threads that are left out.
struct CountingAllocator;

static HELD_BYTES: AtomicIsize = AtomicIsize::new(0);
static PEAK_HELD_BYTES: AtomicIsize = AtomicIsize::new(0);

thread_local! {
    static IS_EXCLUDED: Cell<bool> = const { Cell::new(false) };
}

fn count(bytes: isize) {
    if !IS_EXCLUDED.try_with(Cell::get).unwrap_or(false) {
        let held = HELD_BYTES.fetch_add(bytes, Relaxed) + bytes;
        PEAK_HELD_BYTES.fetch_max(held, Relaxed);
    }
}

// SAFETY: passes everything to the system's allocator; counting allocates nothing.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's contract, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's contract, passed on.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// A server on a thread that is left out: it echoes, or sends `reply` for all that comes at once.
fn serve(reply: Option<&'static str>) -> SocketAddr {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        IS_EXCLUDED.set(true);
        let mut runtime = Runtime::builder().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            sender.send(listener.local_addr().unwrap()).unwrap();
            while let Ok((mut stream, _)) = listener.accept().await {
                annulus::spawn(async move {
                    while let Ok(Some(lease)) = stream.recv().await {
                        let chunk = reply.map_or_else(|| lease.into(), annulus::Chunk::from);
                        if stream.send(chunk).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
    });
    receiver.recv().unwrap()
}

/// The most bytes that a run takes in which every client has had a reply.
fn peak_held_bytes(address: SocketAddr, protocol: &Protocol, clients: usize) -> isize {
    let mut plan = Plan {
        clients,
        protocol: protocol.clone(),
        length: 100,
        warm_up: Duration::ZERO,
        duration: Duration::from_millis(300),
        reply_timeout: Duration::from_secs(20),
        ..Plan::new(address.into(), Streams::default())
    };
    loop {
        let before = HELD_BYTES.load(Relaxed);
        PEAK_HELD_BYTES.store(before, Relaxed);
        let report = run(&plan, &mut ()).unwrap();
        assert!(report.errors.is_empty(), "{:?}", report.errors);
        if report.summary().responses >= clients as u64 {
            return PEAK_HELD_BYTES.load(Relaxed) - before;
        }
        plan.duration *= 2;
    }
}

#[test]
fn active_connection_takes_about_a_kilobyte() {
    let limit = getrlimit(Resource::Nofile);
    if limit.maximum.is_some_and(|maximum| maximum < NEEDED_DESCRIPTORS) {
        eprintln!("skipped: {NEEDED_DESCRIPTORS} descriptors are needed; see `ulimit -Hn`");
        return;
    }
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let http = Protocol::Http(Http::new("127.0.0.1", "/"));
    let reply = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody";
    for (protocol, reply) in [(Protocol::Echo, None), (http, Some(reply))] {
        let address = serve(reply);
        let [few, many] = CLIENT_COUNTS.map(|clients| peak_held_bytes(address, &protocol, clients));
        let each = (many - few) / (CLIENT_COUNTS[1] - CLIENT_COUNTS[0]) as isize;
        println!(
            "{}: {each} bytes a connection, {few} for {} of them",
            protocol.name(),
            CLIENT_COUNTS[0]
        );
        assert!(
            each < MAX_BYTES_PER_CONNECTION,
            "{each} bytes a connection: {few} and {many} for {CLIENT_COUNTS:?}"
        );
    }
}
