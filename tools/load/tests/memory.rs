//! The memory per connection of a load: bytes allocated while connections wait, and while thousands
//! of replies arrive at once.
#![allow(unsafe_code)]

use annulus::Runtime;
use annulus::net::TcpListener;
use annulus_load::{Http, Plan, Protocol, Streams, run};
use annulus_skip::skip;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicIsize, Ordering::Relaxed};
use std::sync::mpsc;
use std::time::Duration;

/// The maximum memory of a client with its connection: its task, exchange and due times, the
/// stream's slot, and its share of the thread's lists.
const MAX_BYTES_PER_CONNECTION: isize = 1100;
/// The client counts of two runs, whose difference excludes the memory that both runs need. Both
/// exceed the count up to which the runtime's default buffers are used. They are far enough apart
/// that memory that grows with the length of a run, which is longer on a busy machine, adds little
/// per connection.
const CLIENT_COUNTS: [usize; 2] = [1100, 4000];
/// Descriptors for both ends of all connections, and for everything else.
const NEEDED_DESCRIPTORS: u64 = 2 * CLIENT_COUNTS[1] as u64 + 100;

/// Counts allocated bytes and their peak, except on excluded threads.
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

// SAFETY: every call is passed to the system's allocator; counting allocates nothing.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller upholds the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller upholds the contract of `dealloc`.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Starts a server on an excluded thread: it echoes, or sends `reply` for each piece that it
/// receives.
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

/// Returns the peak memory of a run in which every client has received a reply.
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
        skip!("{NEEDED_DESCRIPTORS} descriptors are needed; see `ulimit -Hn`");
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
            "{}: {each} bytes per connection, {few} bytes for {} connections",
            protocol.name(),
            CLIENT_COUNTS[0]
        );
        assert!(
            each < MAX_BYTES_PER_CONNECTION,
            "{each} bytes per connection: {few} and {many} for {CLIENT_COUNTS:?} clients"
        );
    }
}
