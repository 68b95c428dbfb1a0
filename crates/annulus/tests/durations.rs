//! `Duration::MAX` and `Duration::ZERO`, wherever a program passes a duration. The maximum means no
//! limit or is refused with an error; zero does what the documentation says. Nothing panics,
//! overflows or hangs.

mod common;
#[path = "common/durations.rs"]
mod durations;

use annulus::fs::{self, Dir, FileCache};
use annulus::io::copy_bidirectional;
use annulus::net::{
    ConnectOptions, KeepAlive, ListenOptions, TcpListener, TcpStream, UdpSocket, UnixStream,
};
use annulus::sim::{Device, Disk, Disturbances, Link, Network, Sim};
use annulus::stats::Histogram;
use annulus::task::spawn_blocking;
use annulus::time::{Instant, MissedTickBehavior, interval, interval_at, sleep, timeout};
use annulus::{Builder, DriverChoice, Runtime, counters, spawn};
use common::{echo, run_on, touch};
use std::future::{Future, pending, ready};
use std::io::{self, ErrorKind};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

const MAX: Duration = Duration::MAX;
const ZERO: Duration = Duration::ZERO;

#[test]
fn no_duration_is_forgotten() {
    let crates =
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("no directory of the crates");
    durations::assert_all_known(
        &crates.join("annulus/src"),
        &[
            "fs/file_cache.rs set_valid_for",
            "io/bidirectional.rs idle_timeout",
            "net/connect.rs attempt_delay",
            "net/connect.rs timeout",
            "net/tcp.rs interval",
            "net/tcp.rs time",
            "net/option_methods.rs set_user_timeout",
            "net/tcp.rs connect_timeout",
            "net/option_methods.rs set_linger",
            "runtime/builder.rs blocking_keep_alive",
            "runtime/builder.rs busy_poll",
            "runtime/builder.rs linger",
            "runtime/builder.rs min_wait",
            "runtime/builder.rs napi_busy_poll",
            "runtime/builder.rs shutdown_timeout",
            "runtime/builder.rs slow_poll",
            "sim/disturb.rs length",
            "sim/disturb.rs pause",
            "sim/network.rs time_limit",
            "stats/histogram.rs record",
            "stats/trace.rs last_stall",
            "time.rs interval",
            "time.rs interval_at",
            "time.rs sleep",
            "time.rs timeout",
            "timers.rs checked_add",
            "timers.rs checked_sub",
            // These are returned by this crate, or used only within it.
            "sim/devices.rs Slow",
            "runtime/guest.rs Wait",
            "stats/mod.rs uptime",
            "stats/mod.rs last_poll",
            "stats/mod.rs ended",
            "stats/mod.rs took",
        ],
    );
    let simulated = [
        "builder.rs turn_cost",
        "fs/disk.rs jitter",
        "fs/disk.rs read",
        "fs/disk.rs sync",
        "fs/disk.rs write",
        "net/link.rs jitter",
        "net/link.rs latency",
        "sim.rs compute",
    ];
    durations::assert_all_known(&crates.join("sim/src"), &simulated);
    durations::assert_all_known(&crates.join("tokio/src"), &[]);
}

/// Runs a body on io_uring, epoll and a simulated kernel; a deadline turns a hang into a failure.
fn on_each<F: Future<Output = io::Result<()>>>(builder: Builder, body: impl Fn() -> F) {
    let real =
        [DriverChoice::Auto, DriverChoice::Epoll].map(|choice| builder.clone().driver(choice));
    for builder in real.into_iter().chain([builder.kernel(Sim::builder(1).build())]) {
        run_on(builder, within(body()));
    }
}

async fn within<T>(body: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(60), body).await.expect("the test hangs")
}

/// Checks an answer over a connection with options on both ends, and a blocking call.
async fn answers(connect: ConnectOptions, listen: ListenOptions) -> io::Result<()> {
    let listener = listen.bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    spawn(async move { echo(listener.accept().await?.0).await });
    // Two addresses, so that the delay between attempts matters.
    let mut client = connect.connect(&[address, address][..]).await?;
    client.send("there and back").await?;
    assert_eq!(&*client.recv_exact(14).await?, b"there and back");
    assert_eq!(spawn_blocking(|| 7).await.expect("the call panicked"), 7);
    client.send("queued when it is dropped").await
}

async fn answers_by_default() -> io::Result<()> {
    answers(ConnectOptions::new(), ListenOptions::new()).await
}

#[test]
fn runtime_accepts_max_and_zero() {
    let longest = Runtime::builder()
        .blocking_keep_alive(MAX)
        .linger(MAX)
        .shutdown_timeout(MAX)
        .slow_poll(Some(MAX));
    on_each(longest, answers_by_default);
    let shortest = Runtime::builder()
        .blocking_keep_alive(ZERO)
        .linger(ZERO)
        .shutdown_timeout(ZERO)
        .busy_poll(ZERO)
        .napi_busy_poll(ZERO)
        .min_wait(ZERO);
    on_each(shortest, answers_by_default);
    for (refused, what) in [
        (Runtime::builder().busy_poll(MAX), "busy_poll"),
        (Runtime::builder().napi_busy_poll(MAX), "napi_busy_poll"),
        (Runtime::builder().min_wait(MAX), "min_wait"),
        (Runtime::builder().slow_poll(Some(ZERO)), "slow_poll of 0"),
    ] {
        let error = refused.build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains(what), "{error}");
    }
}

#[test]
fn connection_accepts_max_and_zero() {
    on_each(Runtime::builder(), || async {
        let connect = ConnectOptions::new().timeout(MAX).attempt_delay(MAX).user_timeout(Some(MAX));
        answers(connect, ListenOptions::new().user_timeout(Some(MAX))).await?;
        let connect = ConnectOptions::new().attempt_delay(ZERO).user_timeout(Some(ZERO));
        answers(connect, ListenOptions::new().user_timeout(Some(ZERO))).await?;
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        // An attempt may have ended before its state is checked.
        for connected in [
            ConnectOptions::new().timeout(ZERO).connect(address).await,
            TcpStream::connect_timeout(address, ZERO).await,
        ] {
            let kind = connected.err().map(|error| error.kind());
            assert!(kind.is_none_or(|kind| kind == ErrorKind::TimedOut), "{kind:?}");
        }
        let stream = TcpStream::connect_timeout(address, MAX).await?;
        stream.set_user_timeout(Some(MAX))?;
        assert!(stream.user_timeout()?.is_some_and(|time| time > Duration::from_secs(24 * 86_400)));
        stream.set_user_timeout(Some(ZERO))?;
        assert_eq!(stream.user_timeout()?, Some(Duration::from_millis(1)));
        assert!(stream.set_linger(Some(MAX)).unwrap_err().to_string().contains("choose 0"));
        stream.set_linger(Some(ZERO))?;
        for time in [MAX, ZERO] {
            for (keepalive, what) in [
                (KeepAlive { time, ..KeepAlive::default() }, "time"),
                (KeepAlive { interval: time, ..KeepAlive::default() }, "interval"),
            ] {
                let error = stream.set_keepalive(Some(keepalive)).unwrap_err();
                assert!(error.to_string().contains(what), "{error}");
            }
        }
        Ok(())
    });
}

#[test]
fn copies_and_caches_accept_max_and_zero() {
    on_each(Runtime::builder(), || async {
        let (mut client, mut near) = UnixStream::pair()?;
        let (mut far, mut server) = UnixStream::pair()?;
        client.send("across").await?;
        client.shutdown().await?;
        server.shutdown().await?;
        let copied = copy_bidirectional(&mut near, &mut far).idle_timeout(MAX).await?;
        assert_eq!(copied, (6, 0));
        assert_eq!(&*server.recv_exact(6).await?, b"across");
        let (_quiet, mut near) = UnixStream::pair()?;
        let (mut far, _silent) = UnixStream::pair()?;
        let copied = copy_bidirectional(&mut near, &mut far).idle_timeout(ZERO).await;
        assert_eq!(copied.unwrap_err().kind(), ErrorKind::TimedOut);
        let directory =
            std::env::temp_dir().join(format!("annulus-durations-{}", std::process::id()));
        fs::create_dir_all(&directory).await?;
        fs::write(directory.join("file"), "text").await?;
        let cache = FileCache::new(Dir::open(&directory).await?);
        for valid in [MAX, ZERO] {
            cache.set_valid_for(valid);
            for _ in 0..3 {
                cache.open("file").await?;
            }
        }
        fs::remove_dir_all(&directory).await
    });
}

#[test]
fn timers_accept_max_and_zero() {
    on_each(Runtime::builder(), || async {
        sleep(ZERO).await;
        assert!(touch(sleep(MAX)).is_none());
        assert_eq!(timeout(MAX, ready(7)).await, Ok(7));
        assert_eq!(timeout(ZERO, ready(7)).await, Ok(7));
        assert!(timeout(ZERO, pending::<()>()).await.is_err());
        let now = Instant::now();
        assert_eq!(now + ZERO, now);
        assert!(now + MAX > now && now - MAX < now);
        assert_eq!((now.checked_add(MAX), now.checked_sub(MAX)), (None, None));
        assert_eq!((now.checked_add(ZERO), now.checked_sub(ZERO)), (Some(now), Some(now)));
        for missed in
            [MissedTickBehavior::Skip, MissedTickBehavior::Burst, MissedTickBehavior::Delay]
        {
            for mut ticks in [interval(MAX), interval_at(now, MAX)] {
                ticks.set_missed_tick_behavior(missed);
                ticks.tick().await;
                let mut next = pin!(ticks.tick());
                assert!(touch(next.as_mut()).is_none());
            }
            let mut ticks = interval(MAX);
            ticks.set_missed_tick_behavior(missed);
            ticks.reset();
            assert!(touch(ticks.tick()).is_none());
            ticks.reset_at(now + MAX);
            assert!(touch(ticks.tick()).is_none());
        }
        // The documentation says that these panic.
        for ticks in [|| interval(ZERO), || interval_at(Instant::now(), ZERO)] {
            assert!(catch_unwind(AssertUnwindSafe(|| drop(ticks()))).is_err());
        }
        let mut histogram = Histogram::default();
        for time in [MAX, ZERO, MAX] {
            histogram.record(time);
        }
        assert_eq!((histogram.sum(), histogram.max(), histogram.count()), (MAX, MAX, 3));
        assert!(histogram.mean().is_some() && histogram.percentile(50.0).is_some());
        let trace = annulus::handle()?.trace().await?;
        assert_eq!(trace.last_stall(MAX), None);
        _ = trace.last_stall(ZERO);
        Ok(())
    });
}

/// The kernel adds the time of a wait to its clock. If the sum overflows, the wait ends at once, and
/// the loop would never sleep.
#[test]
fn loop_sleeps_until_a_deadline_centuries_away() {
    let longest_in_kernel = Duration::from_nanos(i64::MAX as u64);
    for far in [longest_in_kernel, Duration::from_secs(10_000_000_000), MAX] {
        for choice in [DriverChoice::Auto, DriverChoice::Epoll] {
            run_on(Runtime::builder().driver(choice), async {
                let before = counters().expect("no runtime").enters;
                let asleep = spawn_blocking(|| std::thread::sleep(Duration::from_millis(100)));
                timeout(far, asleep).await.expect("not over yet").expect("the call panicked");
                let enters = counters().expect("no runtime").enters - before;
                assert!(enters < 20, "{enters} waits within {far:?} on {choice}");
                Ok(())
            });
        }
    }
}

#[test]
fn simulated_link_and_disk_accept_max_and_zero() {
    for (latency, jitter) in [(MAX, ZERO), (ZERO, MAX), (MAX, MAX), (ZERO, ZERO)] {
        let link = Link { latency, jitter, reordering: 1000, loss: 500, ..Link::default() };
        for choice in [DriverChoice::Uring, DriverChoice::Epoll] {
            let sim = Sim::builder(1).link(link).build();
            let one_second = Duration::from_secs(1);
            run_on(Runtime::builder().driver(choice).kernel(sim), async {
                let answered = timeout(one_second, answers_by_default()).await;
                assert_eq!(answered.is_ok(), latency == ZERO && jitter == ZERO);
                let (one, two) =
                    (UdpSocket::bind("127.0.0.1:9000")?, UdpSocket::bind("127.0.0.1:0")?);
                for n in 0..10 {
                    two.send_to(vec![n], "127.0.0.1:9000".parse().expect("not an address")).await?;
                }
                _ = timeout(one_second, one.recv_from()).await;
                Ok(())
            });
        }
    }
    for (time, jitter) in [(MAX, ZERO), (ZERO, MAX), (MAX, MAX), (ZERO, ZERO)] {
        let device = Device { read: time, write: time, sync: time, jitter, ..Device::default() };
        let sim = Sim::builder(1).disk(Disk::new(device)).build();
        run_on(Runtime::builder().kernel(sim), async {
            let work = async {
                fs::write("/file", "text").await?;
                let file = fs::File::open("/file").await?;
                file.sync_all().await
            };
            let worked = timeout(Duration::from_secs(1), work).await;
            assert_eq!(worked.is_ok(), time == ZERO && jitter == ZERO);
            Ok(())
        });
        let sim = Sim::builder(1).turn_cost(time).build();
        run_on(Runtime::builder().kernel(sim.clone()), async {
            sleep(Duration::from_secs(1)).await;
            sim.compute(time);
            sleep(Duration::from_secs(1)).await;
            answers_by_default().await
        });
    }
}

#[test]
fn simulated_network_accepts_max_and_zero() {
    let one_second = Duration::from_secs(1);
    let ranges = [ZERO..MAX, ZERO..one_second, one_second..MAX, (MAX - one_second)..MAX];
    for (pause, length) in ranges
        .clone()
        .into_iter()
        .flat_map(|pause| ranges.clone().into_iter().map(move |length| (pause.clone(), length)))
    {
        let network = Network::new(1);
        network.time_limit(MAX);
        network
            .host("server", || async {
                let listener = TcpListener::bind("0.0.0.0:7")?;
                loop {
                    spawn(echo(listener.accept().await?.0));
                }
                #[expect(unreachable_code, reason = "the type of the result")]
                io::Result::Ok(())
            })
            .expect("the host cannot be added");
        let sends = network.clone();
        let client = async move {
            sends.disturb(Disturbances { pause, length, ..Disturbances::default() });
            for _ in 0..10 {
                _ = timeout(one_second, TcpStream::connect("server:7")).await;
                sleep(one_second).await;
            }
            io::Result::Ok(())
        };
        network.client("client", client).expect("the client cannot be added");
        network.run().expect("the client failed");
    }
    let network = Network::new(1);
    network.time_limit(ZERO);
    network
        .client("client", async {
            timeout(MAX, sleep(Duration::from_secs(1))).await.map_err(io::Error::from)
        })
        .expect("the host cannot be added");
    assert_eq!(network.run().unwrap_err().kind(), ErrorKind::TimedOut);
    // An empty range is refused.
    let network = Network::new(1);
    let sends = network.clone();
    let client = async move {
        sends.disturb(Disturbances { pause: MAX..MAX, ..Disturbances::default() });
        sleep(Duration::from_secs(1)).await;
        io::Result::Ok(())
    };
    network.client("client", client).expect("the client cannot be added");
    assert_eq!(network.run().unwrap_err().kind(), ErrorKind::InvalidInput);
}
