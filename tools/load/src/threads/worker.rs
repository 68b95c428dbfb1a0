//! A worker thread of the load.

use super::pool::{ClientKind, ClientPool};
use super::{Command, Event, RuntimeSettings};
use crate::clock;
use crate::plan::Turns;
use annulus::shards::Receiver;
use annulus::time;
use std::future::poll_fn;
use std::ops::ControlFlow;
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

/// The measured time, and its turns.
#[derive(Clone, Copy)]
pub(super) struct Times {
    pub(super) duration: Duration,
    pub(super) turns: Option<Turns>,
}

/// The total time of the warm-ups of turns, and the CPU time of the load during them.
#[derive(Default)]
struct WarmUps {
    time: Duration,
    cpu: Duration,
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
    times: Times,
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
        let _: Result<(), RunAbandoned> = channels.run(&mut pool, times).await;
        pool.end().await;
    });
}

impl WorkerChannels {
    async fn run(
        &mut self,
        pool: &mut ClientPool<impl ClientKind>,
        times: Times,
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

    /// Measures one window, with a pause before it, between turns, and at its end.
    async fn run_window(
        &mut self,
        pool: &mut ClientPool<impl ClientKind>,
        times: Times,
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
        let mut warm_ups = WarmUps::default();
        let measured = self.measure(pool, times, &mut warm_ups).await;
        pool.close();
        let cpu = clock::thread_cpu() - cpu - warm_ups.cpu;
        let length = match pool.last_reply() {
            Some(last) => Duration::from_nanos(last.saturating_sub(opened)),
            None => clock::now() - began - warm_ups.time,
        };
        self.report(Event::Closed { length, cpu });
        measured?;
        self.pause()
    }

    /// Runs the clients for the measured time, in turns if they are planned, or until the window is
    /// to be closed.
    async fn measure(
        &mut self,
        pool: &mut ClientPool<impl ClientKind>,
        Times { duration, turns }: Times,
        warm_ups: &mut WarmUps,
    ) -> Result<(), RunAbandoned> {
        let mut is_reported = false;
        let mut end = clock::now() + duration;
        let Some(turns) = turns else {
            return self.run_until(end, pool, &mut is_reported).await.map(drop);
        };
        loop {
            let turn = end.min(clock::now() + turns.length);
            if self.run_until(turn, pool, &mut is_reported).await?.is_break() || turn == end {
                return Ok(());
            }
            self.pause_within_window()?;
            let (began, cpu) = (clock::now(), clock::thread_cpu());
            pool.set_recording(false);
            let ended = self.run_until(began + turns.warm_up, pool, &mut is_reported).await?;
            pool.set_recording(true);
            let time = clock::now() - began;
            warm_ups.time += time;
            warm_ups.cpu += clock::thread_cpu() - cpu;
            end += time;
            if ended.is_break() {
                return Ok(());
            }
            self.pause_within_window()?;
        }
    }

    /// Runs the clients until this time. Breaks if the window is to be closed.
    async fn run_until(
        &mut self,
        end: Duration,
        pool: &mut ClientPool<impl ClientKind>,
        is_reported: &mut bool,
    ) -> Result<ControlFlow<()>, RunAbandoned> {
        loop {
            let left = end.saturating_sub(clock::now());
            if left.is_zero() {
                return Ok(ControlFlow::Continue(()));
            }
            let command = self.next_command_within(left.min(pool.sweep_interval())).await?;
            self.sweep(pool, is_reported);
            if let Some(Command::Close) = command {
                return Ok(ControlFlow::Break(()));
            }
        }
    }

    /// Pauses, and excludes the pause from the time of this thread.
    fn pause_within_window(&self) -> Result<(), RunAbandoned> {
        let paused = clock::nanos();
        self.report(Event::Paused(self.index));
        self.pause()?;
        clock::resume_at(paused);
        Ok(())
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
