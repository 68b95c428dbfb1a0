//! A client on the runtime: sends requests over one connection after the other, and takes the replies.
//!
//! One poll takes everything that has come, then writes what is due: a reply frees a slot that the next request uses in the same turn.
//! Both directions go on at the same time, since a server may reply to a long request before it has received all.

use super::StreamClientKind;
use super::backoff::Backoff;
use crate::clock;
use crate::exchange::{Exchange, OutgoingBuffer, Transport};
use crate::fault::{Fault, FaultKind};
use crate::schedule::{Claim, Pacer};
use crate::threads::ThreadContext;
use crate::transport::Connection;
use annulus::time::{self, Instant, Sleep};
use std::cell::{Cell, OnceCell};
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{self, Poll, Waker, ready};
use std::time::Duration;

/// How long to wait for more bytes after a wrong one.
pub(super) const MISMATCH_WAIT: Duration = Duration::from_millis(100);

/// One client.
pub(super) struct StreamClient<X: Exchange + 'static> {
    number: usize,
    context: Rc<ThreadContext<StreamClientKind<X>>>,
    exchange: X,
    /// Requests that are written, of which so many bytes were accepted.
    out: X::Out,
    accepted: usize,
    pacer: Pacer,
    /// Requests that may still be written to this connection.
    requests_left: u64,
    backoff: Backoff,
    /// Until the next request is due, at this time.
    sleep: Option<(u64, Sleep)>,
    activity: Rc<Activity>,
}

/// Why a connection is no longer used, without a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CloseReason {
    /// The run is over.
    RunOver,
    /// The plan or the server asks for another one.
    Replace,
}

impl<X: Exchange + 'static> StreamClient<X> {
    pub(super) fn new(
        number: usize,
        context: &Rc<ThreadContext<StreamClientKind<X>>>,
        pacer: Pacer,
    ) -> StreamClient<X> {
        StreamClient {
            number,
            context: Rc::clone(context),
            exchange: (context.kind.new_exchange)(number),
            out: Default::default(),
            accepted: 0,
            pacer,
            requests_left: context.kind.streams.requests_per_connection.unwrap_or(u64::MAX),
            backoff: Backoff::new(number),
            sleep: None,
            activity: Rc::default(),
        }
    }

    pub(super) fn activity(&self) -> Rc<Activity> {
        Rc::clone(&self.activity)
    }

    /// Exchanges messages until the run is over. A failure is recorded; the client then goes on with another connection, or ends.
    pub(super) fn run(self, transport: Connection) -> impl Future<Output = ()> {
        // Moved once, so that the task has room for one copy.
        let mut client = self;
        async move {
            let mut transport = transport;
            loop {
                match client.run_connection(&mut transport).await {
                    Ok(CloseReason::RunOver) => return,
                    Ok(CloseReason::Replace) => {}
                    Err(fault) if client.on_failure(&fault) => {}
                    Err(_) => return,
                }
                drop(transport);
                // Few connections are replaced at the same time: the memory for it is not part of the task.
                match Box::pin(client.reconnect()).await {
                    Some(next) => transport = next,
                    None => return,
                }
            }
        }
    }

    /// Uses a connection as long as it may be used.
    async fn run_connection(&mut self, transport: &mut Connection) -> Result<CloseReason, Fault> {
        match poll_fn(|cx| self.poll_exchange(transport, cx)).await {
            Ok(CloseReason::RunOver) => self.close(transport).await.map(|()| CloseReason::RunOver),
            Ok(CloseReason::Replace) => Ok(CloseReason::Replace),
            Err(fault) => Err(Box::pin(self.classify(transport, fault)).await),
        }
    }

    fn poll_exchange(
        &mut self,
        transport: &mut Connection,
        cx: &mut task::Context<'_>,
    ) -> Poll<Result<CloseReason, Fault>> {
        self.activity.register(cx);
        let mut now = None;
        while let Poll::Ready(taken) =
            transport.poll_receive(cx, |bytes| self.take(bytes, &mut now))
        {
            match taken {
                Ok(Some(taken)) => taken?,
                Ok(None) => return Poll::Ready(self.on_close()),
                // A server that has said so may reset the connection, if there are requests that it did not read.
                Err(_) if self.exchange.must_close() => {
                    return Poll::Ready(Ok(self.close_reason()));
                }
                Err(error) => return Poll::Ready(Err(Fault::transfer(&error))),
            }
        }
        if self.activity.has_expired() {
            let limit = self.context.run.plan.reply_timeout;
            return Poll::Ready(Err(Fault::reply_timeout(limit)));
        }
        self.exchange.respond(&mut self.out);
        self.send_due(transport, cx, now)?;
        self.check_close_reason()
            .map_or(Poll::Pending, |check_close_reason| Poll::Ready(Ok(check_close_reason)))
    }

    /// Takes received bytes; sets `now` if there are replies.
    fn take(&mut self, bytes: &[u8], now: &mut Option<u64>) -> Result<(), Fault> {
        let StreamClient { exchange, pacer, context, .. } = self;
        let mut recorder = context.recorder.borrow_mut();
        recorder.bytes_received(bytes.len());
        let mut was_requested = true;
        *now = None;
        let taken = exchange.receive(bytes, &mut |answer| {
            let now = *now.get_or_insert_with(clock::nanos);
            match pacer.answer_at(answer.position, now) {
                Some(request) => recorder.answered(request, answer.outcome, now),
                None => was_requested = false,
            }
        });
        if now.is_some() {
            self.backoff.reset();
        }
        while let Some(position) = exchange.pop_refused() {
            pacer.requeue_at(position, *now.get_or_insert_with(clock::nanos));
        }
        self.activity.update(self.pacer.in_flight());
        if was_requested { taken } else { Err(Fault::unrequested_reply()) }
    }

    /// The server has closed its side.
    #[cold]
    fn on_close(&mut self) -> Result<CloseReason, Fault> {
        let StreamClient { exchange, pacer, context, .. } = self;
        let now = clock::nanos();
        let mut is_answered = false;
        let taken = exchange.on_close(&mut |answer| {
            if let Some(request) = pacer.answer_at(answer.position, now) {
                context.recorder.borrow_mut().answered(request, answer.outcome, now);
                is_answered = true;
            }
        });
        if is_answered {
            self.backoff.reset();
        }
        while let Some(position) = exchange.pop_refused() {
            pacer.requeue_at(position, now);
        }
        taken?;
        self.activity.update(self.pacer.in_flight());
        match self.pacer.in_flight() {
            // Requests that the server did not take are sent again.
            _ if self.exchange.must_close() => Ok(self.close_reason()),
            0 => Ok(self.close_reason()),
            requests => Err(Fault::unanswered(requests)),
        }
    }

    /// The server wants no further request on this connection.
    fn close_reason(&self) -> CloseReason {
        if self.context.is_open.get() { CloseReason::Replace } else { CloseReason::RunOver }
    }

    /// Writes the requests that are due.
    fn send_due(
        &mut self,
        transport: &mut Connection,
        cx: &mut task::Context<'_>,
        mut now: Option<u64>,
    ) -> Result<(), Fault> {
        loop {
            match self.poll_flush(transport, cx) {
                Poll::Ready(Ok(())) if self.may_send() => {}
                Poll::Ready(Err(error)) => return Err(Fault::transfer(&error)),
                Poll::Ready(Ok(())) | Poll::Pending => return Ok(()),
            }
            let most = usize::try_from(self.requests_left).unwrap_or(usize::MAX);
            match self.pacer.claim(most, || *now.get_or_insert_with(clock::nanos)) {
                Claim::Send(requests) => {
                    self.write(requests);
                    now = None;
                }
                Claim::NotBefore(at) => {
                    if self.poll_due(at, cx).is_pending() {
                        return Ok(());
                    }
                    now = None;
                }
                Claim::Full => return Ok(()),
            }
        }
    }

    fn may_send(&self) -> bool {
        self.requests_left > 0 && self.context.is_open.get() && !self.is_refusing()
    }

    /// Whether the server takes no further request on this connection.
    fn is_refusing(&self) -> bool {
        self.exchange.must_close() || self.exchange.is_draining()
    }

    /// Writes requests that were claimed, to be sent.
    fn write(&mut self, requests: usize) {
        self.requests_left -= requests as u64;
        let mut recorder = self.context.recorder.borrow_mut();
        for times in self.pacer.claimed(requests) {
            times.class = self.exchange.request(&mut self.out) as u32;
            recorder.sent(times);
        }
        drop(recorder);
        self.activity.update(self.pacer.in_flight());
    }

    /// Waits until the stream has accepted all written bytes.
    fn poll_flush(
        &mut self,
        transport: &mut Connection,
        cx: &mut task::Context<'_>,
    ) -> Poll<io::Result<()>> {
        if self.out.len() == 0 {
            return Poll::Ready(Ok(()));
        }
        while self.accepted < self.out.len() {
            let count = ready!(transport.poll_send(cx, self.out.bytes_from(self.accepted)))?;
            self.accepted += count;
            self.context.recorder.borrow_mut().bytes_sent(count);
            self.activity.touch();
        }
        self.out.clear();
        self.accepted = 0;
        Poll::Ready(Ok(()))
    }

    /// Ready at a time in ns, or at once if that is over.
    fn poll_due(&mut self, at: u64, cx: &mut task::Context<'_>) -> Poll<()> {
        if self.sleep.as_ref().is_none_or(|(until, _)| *until != at) {
            let wait = Duration::from_nanos(at.saturating_sub(clock::nanos()));
            match &mut self.sleep {
                Some((until, sleep)) => {
                    *until = at;
                    sleep.reset(Instant::now() + wait);
                }
                None => self.sleep = Some((at, time::sleep(wait))),
            }
        }
        let Some((_, sleep)) = &mut self.sleep else { return Poll::Ready(()) };
        ready!(Pin::new(sleep).poll(cx));
        // The timer's clock may be behind this one: then the rest of the time is waited for, too.
        self.sleep = None;
        Poll::Ready(())
    }

    /// Whether the connection is used up.
    fn check_close_reason(&self) -> Option<CloseReason> {
        let is_open = self.context.is_open.get();
        let is_idle = self.pacer.in_flight() == 0 && self.out.len() == 0;
        if !is_open && (is_idle || self.exchange.must_close()) {
            return Some(CloseReason::RunOver);
        }
        (self.exchange.must_close() || (self.requests_left == 0 && is_idle))
            .then_some(CloseReason::Replace)
    }

    /// Half-closes and waits for the server's close; any further reply is an error. Every reply has arrived, so it does not matter how
    /// the connection ends.
    async fn close(&mut self, transport: &mut Connection) -> Result<(), Fault> {
        self.activity.set_stage(Stage::Closing);
        if poll_fn(|cx| transport.poll_shutdown(cx)).await.is_err() {
            return Ok(());
        }
        let mut was_requested = true;
        while let Ok(Some(taken)) = poll_fn(|cx| {
            let exchange = &mut self.exchange;
            transport
                .poll_receive(cx, |bytes| exchange.receive(bytes, &mut |_| was_requested = false))
        })
        .await
        {
            taken?;
            if !was_requested {
                return Err(Fault::unrequested_reply());
            }
        }
        Ok(())
    }

    /// Distinguishes wrong bytes from too many, if the exchange can: a reply sent twice looks wrong at first, but then more arrives
    /// than expected.
    async fn classify(&mut self, transport: &mut Connection, fault: Fault) -> Fault {
        let Some(mut outstanding) = self.exchange.outstanding() else { return fault };
        if fault.kind != FaultKind::WRONG_BYTES {
            return fault;
        }
        loop {
            let more = poll_fn(|cx| transport.poll_receive(cx, <[u8]>::len));
            let Ok(Ok(Some(more))) = time::timeout(MISMATCH_WAIT, more).await else { return fault };
            match outstanding.checked_sub(more) {
                Some(rest) => outstanding = rest,
                None => return Fault::too_many_bytes(more - outstanding),
            }
        }
    }

    /// The connection has failed; whether the client goes on with another one.
    fn on_failure(&mut self, fault: &Fault) -> bool {
        self.context.recorder.borrow_mut().failed(self.pacer.classes());
        self.pacer.fail(clock::nanos());
        self.context.run.faults.record(self.number, fault);
        self.backoff.raise();
        self.context.kind.streams.reconnect && self.context.is_open.get()
    }

    /// Connects anew; `None` if the run is over, or if that failed and the plan has no second attempt. Requests that the last connection
    /// did not take are sent again.
    async fn reconnect(&mut self) -> Option<Connection> {
        self.activity.set_stage(Stage::Connecting);
        self.pacer.requeue_all();
        self.out.clear();
        self.accepted = 0;
        self.exchange.on_reconnect();
        let streams = &self.context.kind.streams;
        self.requests_left = streams.requests_per_connection.unwrap_or(u64::MAX);
        loop {
            let pause = self.backoff.pause();
            if !pause.is_zero() {
                self.until_run_ends(time::sleep(pause)).await?;
            }
            // A connection that brings no reply is not replaced at once.
            self.backoff.raise();
            match self.until_run_ends(self.context.connect()).await? {
                Ok(transport) => {
                    self.context.recorder.borrow_mut().reconnected();
                    self.pacer.connected(clock::nanos());
                    self.activity.set_stage(Stage::Exchanging);
                    self.activity.update(self.pacer.in_flight());
                    return Some(transport);
                }
                Err(fault) => self.context.run.faults.record(self.number, &fault),
            }
            if !self.context.kind.streams.reconnect {
                return None;
            }
        }
    }

    /// Waits for a future; `None` if the run is over first.
    async fn until_run_ends<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        let mut future = pin!(future);
        poll_fn(|cx| match self.context.is_open.get() {
            true => future.as_mut().poll(cx).map(Some),
            false => Poll::Ready(None),
        })
        .await
    }
}

/// The stage of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    /// It connects, or waits before it does.
    Connecting,
    /// It sends requests and receives replies.
    #[default]
    Exchanging,
    /// Every reply has arrived, and only the server's close is awaited.
    Closing,
}

/// The activity of one client.
#[derive(Debug, Default)]
pub(super) struct Activity {
    changes: Cell<u64>,
    in_flight: Cell<u32>,
    stage: Cell<Stage>,
    /// The sweep has found that the server is silent.
    has_expired: Cell<bool>,
    waker: OnceCell<Waker>,
}

impl Activity {
    /// How often bytes were sent or received.
    pub(super) fn changes(&self) -> u64 {
        self.changes.get()
    }

    /// Whether a reply is awaited.
    pub(super) fn is_waiting(&self) -> bool {
        self.in_flight.get() > 0
    }

    pub(super) fn stage(&self) -> Stage {
        self.stage.get()
    }

    pub(super) fn set_stage(&self, stage: Stage) {
        self.stage.set(stage);
        self.has_expired.set(false);
        self.touch();
    }

    pub(super) fn touch(&self) {
        self.changes.set(self.changes.get().wrapping_add(1));
    }

    /// `in_flight` requests are in flight now.
    pub(super) fn update(&self, in_flight: usize) {
        self.touch();
        self.in_flight.set(in_flight as u32);
    }

    /// The client fails with a time-out.
    pub(super) fn expire(&self) {
        self.has_expired.set(true);
        self.wake();
    }

    pub(super) fn has_expired(&self) -> bool {
        self.has_expired.get()
    }

    /// Keeps the waker of the client's task.
    pub(super) fn register(&self, cx: &task::Context<'_>) {
        self.waker.get_or_init(|| cx.waker().clone());
    }

    /// Has the client look at its state.
    pub(super) fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake_by_ref();
        }
    }
}
