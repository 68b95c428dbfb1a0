//! A client on the runtime: sends requests over successive connections, and receives the replies.
//!
//! One poll first takes all received bytes and then writes the due requests, so a slot that a reply
//! frees is used again in the same turn. Both directions proceed at the same time, because a server
//! may start its reply before it has received all of a long request.

use super::StreamClientKind;
use super::backoff::Backoff;
use crate::clock;
use crate::exchange::{Exchange, OutgoingBuffer};
use crate::fault::{Fault, FaultKind};
use crate::schedule::{Claim, Pacer};
use crate::threads::ThreadContext;
use crate::transport::Transport;
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

/// If the written requests have at least this many bytes, the progress of sending them is watched.
const MIN_UPLOAD_BYTES: usize = 64 << 10;

/// Returns true if the stream of a TLS session ended without `close_notify`.
fn is_tls_cut(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::UnexpectedEof
}

/// One client, with its current connection's state.
pub(super) struct StreamClient<X: Exchange + 'static> {
    number: usize,
    context: Rc<ThreadContext<StreamClientKind<X>>>,
    exchange: X,
    /// Written requests, and how many bytes of them the connection has accepted.
    out: X::Out,
    accepted: usize,
    pacer: Pacer,
    /// Number of requests that may still be written to this connection.
    requests_left: u64,
    backoff: Backoff,
    /// The timer for the next due request, with its due time.
    sleep: Option<(u64, Sleep)>,
    /// The error of a failed send. The connection may still deliver a reply.
    send_error: Option<io::Error>,
    activity: Rc<Activity>,
}

/// Why a connection is no longer used, other than a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CloseReason {
    /// The run is over.
    RunOver,
    /// The plan or the server requires a new connection.
    Replace,
    /// The server has answered a request before it has received all of it, and the rest is not
    /// sent: the answer is a rejection, or the run is over.
    Abort,
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
            send_error: None,
            activity: Rc::default(),
        }
    }

    pub(super) fn activity(&self) -> Rc<Activity> {
        Rc::clone(&self.activity)
    }

    /// Exchanges messages until the run is over. After a failure, which is recorded, the client
    /// opens a new connection or ends.
    pub(super) fn run(self, transport: Transport) -> impl Future<Output = ()> {
        // Move the client only once, so that the task has room for only one copy.
        let mut client = self;
        async move {
            let mut transport = transport;
            loop {
                match client.run_connection(&mut transport).await {
                    Ok(CloseReason::RunOver) => break,
                    Ok(CloseReason::Replace) => drop(transport),
                    Ok(CloseReason::Abort) => transport.abort(),
                    Err(fault) if client.on_failure(&fault) => drop(transport),
                    Err(_) => break,
                }
                // Few clients reconnect at the same time, so this future is boxed and takes no
                // memory in the other tasks.
                match Box::pin(client.reconnect()).await {
                    Some(next) => transport = next,
                    None => break,
                }
            }
            client.end();
        }
    }

    /// Records how many due requests were not sent, if there was a window. Before it closes, keeps
    /// the pacer instead, so that the requests are counted then.
    fn end(self) {
        let StreamClient { pacer, context, activity, .. } = self;
        match context.is_open.get() {
            true => activity.keep_pacer(pacer),
            false => {
                // Once the planned number of requests has been sent, no further request was due.
                if let Some(closed_at) = context.closed_at.get().filter(|_| context.quota() > 0) {
                    context.recorder.borrow_mut().unsent(pacer.unsent(closed_at));
                }
            }
        }
    }

    /// Exchanges messages over a connection until it is no longer used.
    async fn run_connection(&mut self, transport: &mut Transport) -> Result<CloseReason, Fault> {
        match poll_fn(|cx| self.poll_exchange(transport, cx)).await {
            Ok(CloseReason::RunOver) => self.close(transport).await.map(|()| CloseReason::RunOver),
            Ok(reason) => Ok(reason),
            Err(fault) => Err(Box::pin(self.classify(transport, fault)).await),
        }
    }

    fn poll_exchange(
        &mut self,
        transport: &mut Transport,
        cx: &mut task::Context<'_>,
    ) -> Poll<Result<CloseReason, Fault>> {
        self.activity.register(cx);
        let mut now = None;
        while let Poll::Ready(taken) =
            transport.poll_receive(cx, |bytes| self.take(bytes, &mut now))
        {
            match taken {
                Ok(Some(taken)) => taken?,
                Ok(None) => return Poll::Ready(self.on_end(None)),
                Err(error) => return Poll::Ready(self.on_end(Some(error))),
            }
        }
        if self.activity.is_uploading() && self.check_upload(transport) {
            return Poll::Ready(Ok(CloseReason::Abort));
        }
        if self.activity.has_expired() {
            return Poll::Ready(Err(self.timeout()));
        }
        self.exchange.respond(&mut self.out);
        self.send_due(transport, cx, now);
        self.check_close_reason()
            .map_or(Poll::Pending, |check_close_reason| Poll::Ready(Ok(check_close_reason)))
    }

    /// Takes received bytes, and sets `now` if there are replies.
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
        drop(recorder);
        self.requeue_refused(now);
        self.activity.update(self.pacer.in_flight());
        if was_requested { taken } else { Err(Fault::unrequested_reply()) }
    }

    /// Handles the end of the connection, possibly with an error.
    ///
    /// # Errors
    /// Fails if a reply is missing or incomplete, or if the protocol does not allow the server to
    /// close an idle connection.
    #[cold]
    fn on_end(&mut self, error: Option<io::Error>) -> Result<CloseReason, Fault> {
        let error = error.or_else(|| self.send_error.take());
        let is_until_close = self.exchange.is_until_close();
        match error {
            None => self.on_close(),
            // A server that has announced the close may reset the connection if it has not read all
            // requests.
            Some(_) if self.exchange.must_close() => Ok(self.close_reason()),
            Some(error) if is_until_close => Err(Fault::cut_off(&error)),
            Some(error) if is_tls_cut(&error) => self.on_close().map_err(Fault::without_notify),
            Some(error) if self.pacer.in_flight() == 0 => {
                self.on_close().map_err(|_| Fault::transfer(&error))
            }
            Some(error) => Err(Fault::transfer(&error)),
        }
    }

    /// Handles the server closing its side.
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
        self.requeue_refused(&mut Some(now));
        taken?;
        self.activity.update(self.pacer.in_flight());
        match self.pacer.in_flight() {
            // The server has announced the close, so requests without a reply are sent again.
            _ if self.exchange.must_close() => Ok(self.close_reason()),
            0 => Ok(self.close_reason()),
            requests => Err(Fault::unanswered(requests)),
        }
    }

    /// Queues the requests that the server has not processed to be sent again.
    fn requeue_refused(&mut self, now: &mut Option<u64>) {
        while let Some(position) = self.exchange.pop_refused() {
            if self.pacer.requeue_at(position, *now.get_or_insert_with(clock::nanos)) {
                self.context.recorder.borrow_mut().retried(1);
                self.context.return_quota(1);
            }
        }
    }

    /// Checks whether the server's kernel has acknowledged more of a long request, which counts as
    /// activity. Returns true if the server has rejected the request, so that the rest must not be
    /// sent.
    #[cold]
    fn check_upload(&mut self, transport: &Transport) -> bool {
        let left = transport.unacknowledged() + (self.out.len() - self.accepted);
        self.activity.set_upload(left);
        left > 0 && self.pacer.in_flight() == 0 && self.exchange.stops_upload()
    }

    /// Returns the fault for what the server has not done in time.
    #[cold]
    fn timeout(&mut self) -> Fault {
        let limit = self.context.run.plan.reply_timeout;
        if let Some(error) = self.send_error.take() {
            return Fault::transfer(&error);
        }
        if self.exchange.is_until_close() {
            return Fault::not_closed(limit);
        }
        if self.activity.is_uploading() {
            Fault::upload_timeout(limit)
        } else {
            Fault::reply_timeout(limit)
        }
    }

    /// Returns why the connection is no longer used when the server accepts no further requests.
    /// Requests without a reply are sent again on the next connection, unless the window is closed:
    /// a planned number of requests is reached only once they are answered.
    fn close_reason(&self) -> CloseReason {
        let resends = self.context.is_open.get() && self.pacer.in_flight() > 0;
        match self.context.is_over() && !resends {
            true => CloseReason::RunOver,
            false => CloseReason::Replace,
        }
    }

    fn send_due(
        &mut self,
        transport: &mut Transport,
        cx: &mut task::Context<'_>,
        mut now: Option<u64>,
    ) {
        while self.send_error.is_none() {
            match self.poll_flush(transport, cx) {
                Poll::Ready(Ok(())) if self.may_send() => {}
                Poll::Ready(Err(error)) => {
                    // The server may have replied before the connection failed, so the fault is
                    // reported when receiving ends.
                    self.send_error = Some(error);
                    cx.waker().wake_by_ref();
                    return;
                }
                Poll::Ready(Ok(())) | Poll::Pending => return,
            }
            let most = self.requests_left.min(self.context.quota());
            let most = usize::try_from(most).unwrap_or(usize::MAX);
            match self.pacer.claim(most, || *now.get_or_insert_with(clock::nanos)) {
                Claim::Send(requests) => {
                    self.write(requests);
                    now = None;
                }
                Claim::NotBefore(at) => {
                    if self.poll_due(at, cx).is_pending() {
                        return;
                    }
                    now = None;
                }
                Claim::Full => return,
            }
        }
    }

    fn may_send(&self) -> bool {
        self.requests_left > 0 && !self.context.is_over() && !self.is_refusing()
    }

    /// Returns true if the server accepts no further requests on this connection.
    fn is_refusing(&self) -> bool {
        self.exchange.must_close() || self.exchange.is_draining()
    }

    /// Writes claimed requests to the buffer.
    fn write(&mut self, requests: usize) {
        self.requests_left -= requests as u64;
        self.context.use_quota(requests);
        let mut recorder = self.context.recorder.borrow_mut();
        for times in self.pacer.claimed(requests) {
            times.class = self.exchange.request(&mut self.out) as u32;
            recorder.sent(times);
        }
        recorder.sent_together(annulus::turns().unwrap_or_default(), requests as u64);
        drop(recorder);
        self.activity.update(self.pacer.in_flight());
    }

    /// Waits until the connection has accepted all written bytes.
    fn poll_flush(
        &mut self,
        transport: &mut Transport,
        cx: &mut task::Context<'_>,
    ) -> Poll<io::Result<()>> {
        if self.out.len() == 0 {
            return Poll::Ready(Ok(()));
        }
        if self.out.len() >= MIN_UPLOAD_BYTES {
            self.activity.set_uploading();
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

    /// Waits until a time in ns; ready at once if it has passed.
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
        // The timer's clock may lag behind `clock::nanos`. The caller then waits again.
        self.sleep = None;
        Poll::Ready(())
    }

    /// Returns why the connection is no longer used, or `None` if it still is.
    fn check_close_reason(&self) -> Option<CloseReason> {
        let is_over = self.context.is_over();
        let is_answered = self.pacer.in_flight() == 0;
        let is_idle = is_answered && self.out.len() == 0;
        if self.exchange.must_close() || (is_over && is_idle) {
            return Some(self.close_reason());
        }
        if is_over && is_answered {
            return Some(CloseReason::Abort);
        }
        (self.requests_left == 0 && is_idle).then_some(CloseReason::Replace)
    }

    /// Closes the client's side and waits for the server to close. Any further reply is an error.
    /// All replies have arrived, so it does not matter how the connection ends.
    async fn close(&mut self, transport: &mut Transport) -> Result<(), Fault> {
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

    /// Distinguishes wrong bytes from too many, if the exchange can: a reply that is sent twice
    /// looks wrong at first, but then more bytes arrive than expected.
    async fn classify(&mut self, transport: &mut Transport, fault: Fault) -> Fault {
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

    /// Handles the failure of the connection. Returns true if the client opens a new one.
    fn on_failure(&mut self, fault: &Fault) -> bool {
        let now = clock::nanos();
        // The requests of an interrupted run are cut off, whatever ends their connections.
        if !self.context.run.faults.is_interrupted() {
            let timed_out = (fault.kind == FaultKind::REPLY_TIMEOUT).then_some(now);
            self.context.recorder.borrow_mut().failed(self.pacer.requests(), timed_out);
        }
        self.pacer.fail(now);
        self.activity.update(0);
        self.context.run.faults.record(self.number, fault);
        self.backoff.raise();
        self.context.kind.streams.reconnect && !self.context.is_over()
    }

    /// Opens a new connection. Returns `None` if the run is over, if connecting failed and the plan
    /// does not reconnect, or if the server is lost and the run could last until it returns.
    /// Requests that the server has not processed on the last connection are sent again.
    async fn reconnect(&mut self) -> Option<Transport> {
        self.activity.set_stage(Stage::Connecting);
        let retried = self.pacer.requeue_all();
        self.context.recorder.borrow_mut().retried(retried);
        self.context.return_quota(retried);
        self.activity.update(0);
        self.out.clear();
        (self.accepted, self.send_error) = (0, None);
        self.exchange.on_reconnect();
        let streams = &self.context.kind.streams;
        self.requests_left = streams.requests_per_connection.unwrap_or(u64::MAX);
        loop {
            if self.context.run.plan.requests.is_some() && self.backoff.is_server_lost() {
                return None;
            }
            let pause = self.backoff.pause();
            if !pause.is_zero() {
                self.until_run_ends(time::sleep(pause)).await?;
            }
            // If no reply arrives on the connection, its replacement must wait.
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

    /// Waits for a future, or returns `None` if the run ends first.
    async fn until_run_ends<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        let mut future = pin!(future);
        poll_fn(|cx| match self.context.is_over() {
            true => Poll::Ready(None),
            false => future.as_mut().poll(cx).map(Some),
        })
        .await
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    /// The client connects, or pauses before connecting.
    Connecting,
    /// The client sends requests and receives replies.
    #[default]
    Exchanging,
    /// All replies have arrived, and the client waits only for the server to close.
    Closing,
}

/// The activity of a client, by which the sweep of its thread sees and controls it.
#[derive(Default)]
pub(super) struct Activity {
    changes: Cell<u64>,
    in_flight: Cell<u16>,
    stage: Cell<Stage>,
    /// Whether the sweep has found the server silent for too long.
    has_expired: Cell<bool>,
    /// While a long request is being sent: the number of its bytes that the server's kernel had not
    /// acknowledged at the last check, at most `u32::MAX`. Otherwise 0.
    upload: Cell<u32>,
    waker: OnceCell<Waker>,
    /// The pacer of a client that ended before the window closed.
    pacer: Cell<Option<Box<Pacer>>>,
}

impl Activity {
    /// Returns the number of times that bytes were sent or received, or the stage changed.
    pub(super) fn changes(&self) -> u64 {
        self.changes.get()
    }

    /// Returns true if a reply is expected, or if a long request is being sent. Its reply may
    /// already have arrived.
    pub(super) fn is_waiting(&self) -> bool {
        self.in_flight.get() > 0 || self.is_uploading()
    }

    pub(super) fn in_flight(&self) -> u64 {
        u64::from(self.in_flight.get())
    }

    fn keep_pacer(&self, pacer: Pacer) {
        self.pacer.set(Some(Box::new(pacer)));
    }

    /// Takes the pacer of a client that ended before the window closed.
    pub(super) fn take_pacer(&self) -> Option<Box<Pacer>> {
        self.pacer.take()
    }

    /// Returns true while a long request is being sent.
    pub(super) fn is_uploading(&self) -> bool {
        self.upload.get() > 0
    }

    /// Records that a long request is being sent.
    fn set_uploading(&self) {
        if !self.is_uploading() {
            self.upload.set(u32::MAX);
        }
    }

    /// Records how many bytes of a long request the server's kernel has not acknowledged. A change
    /// is activity.
    fn set_upload(&self, left: usize) {
        let left = u32::try_from(left).unwrap_or(u32::MAX);
        if self.upload.replace(left) != left {
            self.touch();
            self.has_expired.set(false);
        }
    }

    pub(super) fn stage(&self) -> Stage {
        self.stage.get()
    }

    pub(super) fn set_stage(&self, stage: Stage) {
        self.stage.set(stage);
        self.has_expired.set(false);
        self.upload.set(0);
        self.touch();
    }

    pub(super) fn touch(&self) {
        self.changes.set(self.changes.get().wrapping_add(1));
    }

    /// Records activity, and the number of requests in flight.
    pub(super) fn update(&self, in_flight: usize) {
        self.touch();
        self.in_flight.set(in_flight as u16);
    }

    /// Makes the client fail with a timeout.
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

    /// Wakes the client to check its state.
    pub(super) fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake_by_ref();
        }
    }
}
