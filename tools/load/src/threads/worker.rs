//! A worker thread of the load.

use super::pool::{ClientKind, ClientPool};
use super::{Command, Event, RuntimeSettings};
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

/// A worker's channels to the calling thread. If the other end is gone, the run has been abandoned.
pub(super) struct WorkerChannels {
    pub(super) index: usize,
    pub(super) events: mpsc::Sender<Event>,
    pub(super) commands: Receiver<Command>,
    /// Ends a pause.
    pub(super) release: mpsc::Receiver<()>,
    /// Replies so far, for each thread.
    pub(super) responses: Arc<[AtomicU64]>,
}

/// The calling thread has abandoned the run.
struct RunAbandoned;

impl Drop for WorkerChannels {
    /// Reports the end of the thread, also after a panic.
    fn drop(&mut self) {
        let _ = self.events.send(Event::Ended);
    }
}

pub(super) fn run_worker<K: ClientKind>(
    mut channels: WorkerChannels,
    settings: RuntimeSettings,
    [duration, turn]: [Duration; 2],
    pool: impl FnOnce() -> ClientPool<K>,
) {
    let mut runtime = match settings.builder().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            channels.report(Event::Ready(Err(error)));
            return;
        }
    };
    channels.report(Event::Ready(Ok(runtime.driver().to_string())));
    runtime.block_on(async {
        let mut pool = pool();
        // If the run is abandoned, requests that have been recorded still count.
        let _: Result<(), RunAbandoned> = channels.run(&mut pool, [duration, turn]).await;
        pool.end().await;
    });
}

impl WorkerChannels {
    async fn run(
        &mut self,
        pool: &mut ClientPool<impl ClientKind>,
        times: [Duration; 2],
    ) -> Result<(), RunAbandoned> {
        let connected = self.unless_abandoned(pool.connect()).await?;
        self.report(Event::Connected(connected));
        if let Command::Start(began) = self.next_command().await? {
            if pool.has_quota() {
                // Every request counts, so the window opens before the first one.
                while !matches!(self.next_command().await?, Command::Open) {}
            } else {
                pool.start(began);
                self.warm_up(pool).await?;
            }
            self.run_window(pool, times).await?;
        }
        self.unless_abandoned(pool.finish()).await.map(drop)
    }

    /// Runs the clients until the window is to be opened.
    async fn warm_up(
        &mut self,
        pool: &mut ClientPool<impl ClientKind>,
    ) -> Result<(), RunAbandoned> {
        let mut is_reported = false;
        loop {
            if let Some(Command::Open) = self.next_command_within(pool.sweep_interval()).await? {
                return Ok(());
            }
            self.sweep(pool, &mut is_reported);
        }
    }

    /// Measures one window, with a pause before it, after each turn, and at its end.
    async fn run_window(
        &mut self,
        pool: &mut ClientPool<impl ClientKind>,
        [duration, turn]: [Duration; 2],
    ) -> Result<(), RunAbandoned> {
        let paused = clock::nanos();
        self.report(Event::Paused(self.index));
        self.pause()?;
        let (began, cpu) = (clock::now(), clock::thread_cpu());
        let opened = clock::nanos();
        pool.open(paused..opened);
        if pool.has_quota() {
            pool.start(opened);
        }
        let measured = self.measure(pool, began + duration, turn).await;
        pool.close();
        let cpu = clock::thread_cpu() - cpu;
        let length = match pool.last_reply() {
            Some(last) => Duration::from_nanos(last.saturating_sub(opened)),
            None => clock::now() - began,
        };
        self.report(Event::Closed { length, cpu });
        measured?;
        self.pause()
    }

    /// Runs the clients until `end`, or until the window is to be closed. Pauses after each turn.
    async fn measure(
        &mut self,
        pool: &mut ClientPool<impl ClientKind>,
        end: Duration,
        turn: Duration,
    ) -> Result<(), RunAbandoned> {
        let mut is_reported = false;
        let mut pause_at = clock::now().saturating_add(turn);
        loop {
            let now = clock::now();
            if now >= end {
                return Ok(());
            }
            if now >= pause_at {
                let paused = clock::nanos();
                self.report(Event::Paused(self.index));
                self.pause()?;
                clock::resume_at(paused);
                pause_at = clock::now().saturating_add(turn);
            }
            let left = end.min(pause_at).saturating_sub(now);
            let command = self.next_command_within(left.min(pool.sweep_interval())).await?;
            self.sweep(pool, &mut is_reported);
            if let Some(Command::Close) = command {
                return Ok(());
            }
        }
    }

    fn sweep(&self, pool: &mut ClientPool<impl ClientKind>, is_reported: &mut bool) {
        pool.sweep();
        self.responses[self.index].store(pool.responses(), Relaxed);
        if !*is_reported && pool.is_finished() {
            *is_reported = true;
            self.report(Event::Finished);
        }
    }

    fn report(&self, event: Event) {
        // If the receiver is gone, this is noticed when waiting for the next command.
        let _ = self.events.send(event);
    }

    async fn next_command(&mut self) -> Result<Command, RunAbandoned> {
        self.commands.recv().await.ok_or(RunAbandoned)
    }

    async fn next_command_within(
        &mut self,
        limit: Duration,
    ) -> Result<Option<Command>, RunAbandoned> {
        match time::timeout(limit, self.commands.recv()).await {
            Ok(command) => command.ok_or(RunAbandoned).map(Some),
            Err(time::Elapsed { .. }) => Ok(None),
        }
    }

    /// Stops this thread, with all its clients, until it is released.
    fn pause(&self) -> Result<(), RunAbandoned> {
        self.release.recv().map_err(|_| RunAbandoned)
    }

    /// Waits for a future, unless the run is abandoned.
    async fn unless_abandoned<T>(
        &mut self,
        future: impl Future<Output = T>,
    ) -> Result<T, RunAbandoned> {
        let mut future = pin!(future);
        poll_fn(|cx| {
            if let Poll::Ready(output) = future.as_mut().poll(cx) {
                return Poll::Ready(Ok(output));
            }
            match self.commands.poll_recv(cx) {
                Poll::Ready(None) => return Poll::Ready(Err(RunAbandoned)),
                // A command to close can arrive after the window has closed. It has no effect then.
                Poll::Ready(Some(_)) => cx.waker().wake_by_ref(),
                Poll::Pending => {}
            }
            Poll::Pending
        })
        .await
    }
}
