//! `console-subscriber` in a program on annulus, and a client that queries it like `tokio-console`.
//! The console must report the tasks with their locations, polls and wakes.

use annulus::time::sleep;
use annulus::spawn;
use annulus::task::yield_now;
use console_api::instrument::instrument_client::InstrumentClient;
use console_api::instrument::{InstrumentRequest, Update};
use console_api::tasks::{Stats, Task};
use std::collections::HashMap;
use std::sync::mpsc;
use std::time::Duration;
use std::{env, fs, process, thread};
use tokio::sync::oneshot;
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const MAX_TEST_TIME: Duration = Duration::from_secs(30);

/// The tasks of this program, as reported by the console.
#[derive(Default)]
struct Seen {
    tasks: Vec<Task>,
    stats: HashMap<u64, Stats>,
}

impl Seen {
    fn add(&mut self, update: Update) {
        let tasks = update.task_update.expect("an update has no tasks");
        assert_eq!(tasks.dropped_events, 0);
        self.tasks.extend(tasks.new_tasks);
        self.stats.extend(tasks.stats_update);
    }

    /// Returns the statistics of the task spawned at this line of this file.
    fn stats_of(&self, line: u32) -> Option<&Stats> {
        let at = |task: &&Task| {
            let place = task.location.as_ref().expect("a task has no location");
            place.line == Some(line) && place.file() == file!() && place.column.is_some()
        };
        let id = self.tasks.iter().find(at)?.id.as_ref()?;
        self.stats.get(&id.id)
    }
}

/// Waits until the console listens, and connects.
async fn watch(address: &str) -> Result<Streaming<Update>, Failure> {
    let endpoint = Endpoint::from_shared(address.to_owned())?;
    let channel: Channel = loop {
        match endpoint.connect().await {
            Ok(channel) => break channel,
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    };
    let mut client = InstrumentClient::new(channel).max_decoding_message_size(1 << 24);
    Ok(client.watch_updates(InstrumentRequest {}).await?.into_inner())
}

/// Receives updates until `shown` returns true.
async fn until(
    seen: &mut Seen,
    updates: &mut Streaming<Update>,
    shown: impl Fn(&Seen) -> bool,
) -> Result<(), Failure> {
    while !shown(seen) {
        seen.add(updates.message().await?.ok_or("the console has ended")?);
    }
    Ok(())
}

#[test]
fn console_shows_tasks_with_their_locations_polls_and_wakes() {
    let socket = env::temp_dir().join(format!("annulus-console-{}", process::id()));
    let console = console_subscriber::ConsoleLayer::builder().server_addr(&*socket);
    console.publish_interval(Duration::from_millis(20)).init();

    let (stop, stopped) = oneshot::channel::<()>();
    let (lines, of_tasks) = mpsc::channel();
    let program = thread::spawn(move || {
        annulus::run(async move {
            let yields = line!() + 1;
            let busy = spawn(async {
                for _ in 0..5 {
                    yield_now().await;
                }
            });
            let sleeps = line!() + 1;
            let timed = spawn(async {
                for _ in 0..3 {
                    sleep(Duration::from_millis(1)).await;
                }
                // From now on the task waits for another thread.
                stopped.await
            });
            lines.send([yields, sleeps]).expect("the test does not wait");
            busy.await.expect("a task panicked");
            timed.await.expect("a task panicked").expect("the test sends nothing");
        });
    });

    let [yields, sleeps] = of_tasks.recv().expect("the program did not begin");
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let asking = async {
        let mut updates = watch(&format!("unix://{}", socket.display())).await?;
        let mut seen = Seen::default();
        let polls = |stats: &Stats| stats.poll_stats.as_ref().map_or(0, |polls| polls.polls);
        until(&mut seen, &mut updates, |seen| {
            // The first poll, and one after each sleep. No further poll follows.
            let asleep = seen.stats_of(sleeps).is_some_and(|stats| polls(stats) == 4);
            asleep && seen.stats_of(yields).is_some_and(|stats| stats.dropped_at.is_some())
        })
        .await?;
        let [busy, timed] =
            [yields, sleeps].map(|line| seen.stats_of(line).expect("the task is not listed"));
        // One poll per yield, the last poll, and the drop, which also enters the task's span.
        assert_eq!((polls(busy), busy.wakes, busy.self_wakes), (7, 5, 5));
        assert_eq!((timed.wakes, timed.self_wakes), (3, 0));
        assert_eq!(
            timed.waker_clones - timed.waker_drops,
            1,
            "only the receiver must hold a waker"
        );
        assert!(timed.dropped_at.is_none());

        stop.send(()).expect("the task does not wait");
        until(&mut seen, &mut updates, |seen| {
            seen.stats_of(sleeps).is_some_and(|stats| stats.dropped_at.is_some())
        })
        .await?;
        let timed = seen.stats_of(sleeps).expect("the task is not listed");
        assert_eq!((polls(timed), timed.wakes), (6, 4), "the last poll or the drop was not counted");
        assert_eq!(timed.waker_clones, timed.waker_drops, "a waker was leaked");
        Ok::<_, Failure>(())
    };
    let watched = tokio.block_on(async { tokio::time::timeout(MAX_TEST_TIME, asking).await });
    program.join().expect("the program panicked");
    fs::remove_file(&socket).expect("the console created no socket");
    watched.expect("the console did not answer in time").expect("its answer is invalid");
}
