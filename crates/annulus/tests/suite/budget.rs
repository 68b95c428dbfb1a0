//! A task that always finds something ready delays other tasks by at most one budget. Each test is
//! named after what is ready.

use crate::common;

use annulus::fs::{self, File};
use annulus::io::{AsyncRecv, AsyncSend, FromTokio};
use annulus::net::{TcpListener, TcpStream, UnixStream, lookup_host};
use annulus::task::{JoinSet, consume_budget, cooperative, yield_now};
use annulus::time::{Instant, MissedTickBehavior, interval_at, sleep_until};
use annulus::{Runtime, shards, sim, spawn};
use common::run;
use futures_util::StreamExt;
use std::cell::Cell;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;
use tokio::io::ReadBuf;
use tokio_util::sync::CancellationToken;

const ITEMS: u32 = 300_000;

/// Counts the operations that a task has completed.
#[derive(Clone, Default)]
struct Count(Rc<Cell<u32>>);

impl Count {
    fn up(&self) {
        self.0.set(self.0.get() + 1);
    }
}

/// Runs the drain beside a task that checks the count each time it runs. The count must not have
/// grown by more than `limit` since its last run. Runs on this machine's kernel and on a simulated
/// one.
fn delays_by<F: Future<Output = ()> + 'static>(limit: u32, drain: impl Fn(Count) -> F) {
    let watched = async || {
        let count = Count::default();
        let drains = spawn(drain(count.clone()));
        let (mut last, mut turns) = (0, 0);
        while !drains.is_finished() {
            yield_now().await;
            let now = count.0.get();
            assert!(now - last <= limit, "{} in a row", now - last);
            last = now;
            turns += 1;
        }
        drains.await?;
        assert!(count.0.get() > limit && turns > 1, "the drain was not interrupted");
        io::Result::Ok(())
    };
    run(watched());
    let simulated = sim::Sim::builder(1).build();
    sim::run_on(&simulated, Runtime::builder(), watched()).unwrap();
}

fn delays_by_one_budget<F: Future<Output = ()> + 'static>(drain: impl Fn(Count) -> F) {
    delays_by(128, drain);
}

#[test]
fn receives_from_a_channel() {
    delays_by_one_budget(async |count| {
        let (sender, mut receiver) = shards::channel(ITEMS as usize);
        (0..ITEMS).for_each(|item| sender.try_send(item).unwrap());
        drop(sender);
        while receiver.recv().await.is_some() {
            count.up();
        }
        assert_eq!(count.0.get(), ITEMS);
    });
}

#[test]
fn sends_that_always_have_room() {
    delays_by_one_budget(async |count| {
        let (sender, _receiver) = shards::channel(ITEMS as usize);
        for item in 0..ITEMS {
            sender.send(item).await.unwrap();
            count.up();
        }
    });
}

/// Futures of other crates, which do not know this runtime's budget.
#[test]
fn cooperative_futures_of_other_crates() {
    delays_by_one_budget(async |count| {
        let (sender, mut receiver) = tokio::sync::broadcast::channel(ITEMS as usize);
        (0..ITEMS).for_each(|item| assert_eq!(sender.send(item).unwrap(), 1));
        drop(sender);
        while cooperative(receiver.recv()).await.is_ok() {
            count.up();
        }
        assert_eq!(count.0.get(), ITEMS);
    });
}

#[test]
fn timers_that_are_due() {
    delays_by_one_budget(async |count| {
        for _ in 0..ITEMS / 10 {
            sleep_until(Instant::now()).await;
            count.up();
        }
    });
}

#[test]
fn a_loop_that_consumes_budget_explicitly() {
    delays_by_one_budget(async |count| {
        for _ in 0..ITEMS / 10 {
            consume_budget().await;
            count.up();
        }
    });
}

/// `try_join_next` does not wait, so it must not need budget: no wake could resume it later.
#[test]
fn a_finished_task_leaves_its_set_whatever_the_remaining_budget() {
    let mut runtime = Runtime::builder().task_budget(1).build().unwrap();
    runtime.block_on(async {
        let mut set: JoinSet<_> = (0..3).map(|number| async move { number }).collect();
        while !set.is_empty() {
            // Uses up the whole budget of this poll.
            consume_budget().await;
            while set.try_join_next().is_some() {}
        }
    });
}

#[test]
fn finished_tasks_of_a_set() {
    delays_by_one_budget(async |count| {
        let mut set: JoinSet<_> = (0..ITEMS / 10).map(|_| async {}).collect();
        while set.join_next().await.is_some() {
            count.up();
        }
        assert_eq!(count.0.get(), ITEMS / 10);
    });
}

#[test]
fn a_cancelled_token() {
    delays_by_one_budget(async |count| {
        let stop = CancellationToken::new();
        stop.cancel();
        for _ in 0..ITEMS {
            cooperative(stop.cancelled()).await;
            count.up();
        }
    });
}

#[test]
fn a_stream_of_a_channel() {
    delays_by_one_budget(async |count| {
        let (sender, mut values) = shards::channel(ITEMS as usize);
        (0..ITEMS).for_each(|item| sender.try_send(item).unwrap());
        drop(sender);
        while values.next().await.is_some() {
            count.up();
        }
        assert_eq!(count.0.get(), ITEMS);
    });
}

#[test]
fn a_stream_of_missed_ticks() {
    delays_by_one_budget(async |count| {
        let long_ago = Instant::now();
        annulus::time::sleep(Duration::from_millis(5)).await;
        let mut ticks = interval_at(long_ago, Duration::from_micros(1));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        for _ in 0..5000 {
            ticks.next().await;
            count.up();
        }
    });
}

#[test]
fn addresses_that_need_no_lookup() {
    delays_by_one_budget(async |count| {
        for _ in 0..ITEMS / 10 {
            drop(lookup_host("127.0.0.1:1").await.unwrap());
            count.up();
        }
    });
}

#[test]
fn lookups_of_names() {
    delays_by_one_budget(async |count| {
        for _ in 0..300 {
            drop(lookup_host("localhost:1").await.unwrap());
            count.up();
        }
    });
}

/// One system call reads a thousand directory entries.
#[test]
fn entries_of_a_directory() {
    delays_by_one_budget(async |count| {
        let path = std::env::temp_dir().join(format!("annulus-budget-{}", std::process::id()));
        fs::create_dir_all(&path).await.unwrap();
        for number in 0..1000 {
            File::create(path.join(number.to_string())).await.unwrap();
        }
        let mut entries = fs::read_dir(&path).await.unwrap();
        while entries.next_entry().await.unwrap().is_some() {
            count.up();
        }
        assert_eq!(count.0.get(), 1000);
        fs::remove_dir_all(&path).await.unwrap();
    });
}

/// File calls on the loop have their own budget: 100 µs per turn by their estimated cost, which is
/// 400 ns for such a read.
#[test]
fn reads_that_find_everything_in_memory() {
    delays_by(251, async |count| {
        let path = std::env::temp_dir().join(format!("annulus-cached-{}", std::process::id()));
        // The simulated disk begins without directories.
        fs::create_dir_all(std::env::temp_dir()).await.unwrap();
        let mut file = File::create(&path).await.unwrap();
        file.write_all(vec![1; 4096]).await.0.unwrap();
        let file = File::open(&path).await.unwrap();
        fs::remove_file(&path).await.unwrap();
        let mut buf = vec![0; 64];
        for _ in 0..ITEMS / 30 {
            let (read, back) = file.read_at(buf, 0).await;
            assert_eq!(read.unwrap(), 64);
            buf = back;
            count.up();
        }
    });
}

/// The queue of waiting connections is bounded, so accepting them needs no budget of its own.
#[test]
fn waiting_connections() {
    delays_by(128, async |count| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        for _ in 0..3 {
            let mut clients = JoinSet::new();
            (0..100).for_each(|_| drop(clients.spawn(TcpStream::connect(address))));
            for _ in 0..100 {
                drop(listener.accept().await.unwrap());
                count.up();
            }
        }
    });
}

#[test]
fn a_budget_of_one_works_and_of_zero_is_refused() {
    let error = Runtime::builder().task_budget(0).build().unwrap_err();
    assert!(error.to_string().contains("task_budget of 0"), "{error}");
    let mut runtime = Runtime::builder().task_budget(1).build().unwrap();
    runtime.block_on(async {
        let (sender, mut receiver) = shards::channel(10);
        for item in 0..10 {
            sender.send(item).await.unwrap();
        }
        drop(sender);
        let mut sum = 0;
        while let Some(item) = receiver.recv().await {
            sum += item;
        }
        assert_eq!(sum, 45);
    });
}

/// Waits like the executors of other crates that block a thread: it polls only once it is woken.
fn block_this_thread_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        thread::park();
    }
}

/// Such an executor does not return to the loop, which renews the budget, so it polled for ever.
#[test]
fn an_executor_inside_a_task_finishes_what_needs_more_than_one_budget() {
    for task_budget in [1, 128] {
        let mut runtime = Runtime::builder().task_budget(task_budget).build().unwrap();
        runtime.block_on(async {
            let (sender, mut receiver) = shards::channel(ITEMS as usize);
            (0..1000).for_each(|item| sender.try_send(item).unwrap());
            drop(sender);
            let (mut stream, _other) = UnixStream::pair().unwrap();
            let sum = block_this_thread_on(async {
                let mut sum = 0;
                while let Some(item) = cooperative(receiver.recv()).await {
                    sum += item;
                    sleep_until(Instant::now()).await;
                    consume_budget().await;
                }
                for _ in 0..1000 {
                    stream.send("").await.unwrap();
                }
                sum
            });
            assert_eq!(sum, 499_500);
        });
    }
}

/// A stream that always has its next byte ready and accepts every byte.
struct AlwaysReady(u32);

impl AlwaysReady {
    fn read(&mut self, memory: &mut [u8]) -> usize {
        self.0 -= u32::from(self.0 > 0);
        memory[0] = 7;
        usize::from(self.0 > 0)
    }
}

impl tokio::io::AsyncRead for AlwaysReady {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut byte = [0];
        let count = self.get_mut().read(&mut byte);
        buf.put_slice(&byte[..count]);
        Poll::Ready(Ok(()))
    }
}

async fn read_all(mut from: impl AsyncRecv, count: Count) {
    while !from.fill_buf().await.unwrap().is_empty() {
        from.consume(1);
        count.up();
    }
}

#[test]
fn streams_of_other_crates() {
    delays_by_one_budget(|count| read_all(FromTokio::new(AlwaysReady(ITEMS)), count));
    delays_by_one_budget(async |count| {
        let mut sink = FromTokio::new(tokio::io::sink());
        for _ in 0..ITEMS {
            sink.write_all(b"7").await.unwrap();
            count.up();
        }
    });
}
