//! A thread of the load.

use super::pool::{ClientPool, Kind};
use super::{Command, Event, Settings};
use crate::clock;
use annulus::shards::Receiver;
use annulus::time;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc;
use std::task::Poll;
use std::time::Duration;

/// A thread's channels to the calling thread. If the other end is gone, the run is given up.
pub(super) struct Link {
    pub(super) index: usize,
    pub(super) events: mpsc::Sender<Event>,
    pub(super) commands: Receiver<Command>,
    /// Ends a standstill.
    pub(super) release: mpsc::Receiver<()>,
    /// Responses so far, of each thread.
    pub(super) responses: Arc<[AtomicU64]>,
}

/// The run is given up.
struct GivenUp;

impl Drop for Link {
    /// Also after a panic.
    fn drop(&mut self) {
        let _ = self.events.send(Event::Ended);
    }
}

/// The life of a thread.
pub(super) fn work<K: Kind>(
    mut link: Link,
    settings: Settings,
    duration: Duration,
    pool: impl FnOnce() -> ClientPool<K>,
) {
    let mut runtime = match settings.builder().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            link.report(Event::Ready(Err(error)));
            return;
        }
    };
    link.report(Event::Ready(Ok(runtime.driver().to_string())));
    runtime.block_on(async {
        let mut pool = pool();
        // If the run is given up, the requests that were recorded before count all the same.
        let _: Result<(), GivenUp> = link.run(&mut pool, duration).await;
        pool.end().await;
    });
}

impl Link {
    async fn run(
        &mut self,
        pool: &mut ClientPool<impl Kind>,
        duration: Duration,
    ) -> Result<(), GivenUp> {
        let connected = self.unless_given_up(pool.connect()).await?;
        self.report(Event::Connected(connected));
        if let Command::Start(began) = self.next().await? {
            pool.start(began);
            self.warm_up(pool).await?;
            self.open(pool, duration).await?;
        }
        self.unless_given_up(pool.finish()).await.map(drop)
    }

    /// Lets the clients work until the window is to be opened.
    async fn warm_up(&mut self, pool: &mut ClientPool<impl Kind>) -> Result<(), GivenUp> {
        let mut is_reported = false;
        loop {
            if let Some(Command::Open) = self.next_within(pool.sweep_interval()).await? {
                return Ok(());
            }
            self.sweep(pool, &mut is_reported);
        }
    }

    /// The window, from one standstill to the other.
    async fn open(
        &mut self,
        pool: &mut ClientPool<impl Kind>,
        duration: Duration,
    ) -> Result<(), GivenUp> {
        let paused = clock::nanos();
        self.report(Event::Paused);
        self.stand_still()?;
        let (began, cpu) = (clock::now(), clock::thread_cpu());
        pool.open(paused..clock::nanos());
        let measured = self.measure(pool, began + duration).await;
        pool.close();
        let (length, cpu) = (clock::now() - began, clock::thread_cpu() - cpu);
        self.report(Event::Closed { length, cpu });
        measured?;
        self.stand_still()
    }

    /// Lets the clients work until `end`, or until the window is to be closed.
    async fn measure(
        &mut self,
        pool: &mut ClientPool<impl Kind>,
        end: Duration,
    ) -> Result<(), GivenUp> {
        let mut is_reported = false;
        loop {
            let left = end.saturating_sub(clock::now());
            if left.is_zero() {
                return Ok(());
            }
            let command = self.next_within(left.min(pool.sweep_interval())).await?;
            self.sweep(pool, &mut is_reported);
            if let Some(Command::Close) = command {
                return Ok(());
            }
        }
    }

    fn sweep(&self, pool: &mut ClientPool<impl Kind>, is_reported: &mut bool) {
        pool.sweep();
        self.responses[self.index].store(pool.responses(), Relaxed);
        if !*is_reported && pool.is_finished() {
            *is_reported = true;
            self.report(Event::Finished);
        }
    }

    fn report(&self, event: Event) {
        // If the receiver is gone, the next command says so.
        let _ = self.events.send(event);
    }

    async fn next(&mut self) -> Result<Command, GivenUp> {
        self.commands.recv().await.ok_or(GivenUp)
    }

    async fn next_within(&mut self, limit: Duration) -> Result<Option<Command>, GivenUp> {
        match time::timeout(limit, self.commands.recv()).await {
            Ok(command) => command.ok_or(GivenUp).map(Some),
            Err(time::Elapsed { .. }) => Ok(None),
        }
    }

    /// Stops this thread, with all its clients, until it is released.
    fn stand_still(&self) -> Result<(), GivenUp> {
        self.release.recv().map_err(|_| GivenUp)
    }

    /// Waits for a future.
    async fn unless_given_up<T>(&mut self, future: impl Future<Output = T>) -> Result<T, GivenUp> {
        let mut future = pin!(future);
        poll_fn(|cx| {
            if let Poll::Ready(output) = future.as_mut().poll(cx) {
                return Poll::Ready(Ok(output));
            }
            match self.commands.poll_recv(cx) {
                Poll::Ready(None) => return Poll::Ready(Err(GivenUp)),
                // A command to close that came when the window was closed.
                Poll::Ready(Some(_)) => cx.waker().wake_by_ref(),
                Poll::Pending => {}
            }
            Poll::Pending
        })
        .await
    }
}
