//! The parts of a run other than the first. They start and stop when the first part says so.

use super::Meeting;
use super::protocol::{
    FromPart, HANDSHAKE_TIMEOUT, Join, MAX_JOIN_BYTES, MAX_MESSAGE_BYTES, PROTOCOL, Stage, ToPart,
    configure, settings,
};
use crate::frames::{self, Deadline};
use crate::output::note;
use crate::signals::{SIGHUP, SIGINT, SIGTERM, Stop};
use crate::text::printable;
use crate::token;
use annulus_load::recording::{Interval, Machine};
use annulus_load::{Observer, Plan, Progress, clock};
use anyhow::{Context, Result, anyhow, bail};
use std::cell::RefCell;
use std::net::TcpStream;
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// How often to check for signals while waiting, and the pause between attempts to connect.
const CHECK_PERIOD: Duration = Duration::from_millis(50);

/// The connection of this part to the first part, and the observer of this part's load.
struct Follower {
    stop: Stop,
    stream: TcpStream,
    patience: Duration,
    state: RefCell<State>,
}

struct State {
    messages: Receiver<Result<ToPart, String>>,
    /// The last stage that all parts have reached.
    stage: Option<Stage>,
    /// Why the run ends early, if it does.
    stopped: Option<String>,
    /// Whether this part has reported a signal to the first part.
    has_told: bool,
    is_done: bool,
    /// Whether the connection to the first part has ended.
    is_lost: bool,
}

/// Takes part in the run of the first part.
///
/// # Errors
/// Fails if the first part cannot be reached, refuses this part, is lost, or ends the run, and if
/// the load of this part fails.
pub(in crate::load) fn follow(meeting: Meeting, plan: &Plan) -> Result<ExitCode> {
    let stop = Stop::install(&[SIGINT, SIGTERM, SIGHUP]).context("cannot handle signals")?;
    let mut follower = Follower::join(meeting, plan, stop)?;
    let recording = annulus_load::run(plan, &mut follower);
    let message = match &recording {
        Ok(recording) => FromPart::Recording(Box::new(recording.clone())),
        Err(error) => FromPart::Failed(error.to_string()),
    };
    follower.send(&message);
    let recording = recording.map_err(crate::load::classify)?;
    let is_done = follower.wait_until(|state| state.is_done || state.is_lost);
    let state = follower.state.get_mut();
    if let Some((signal, status)) = follower.stop.reason().filter(|_| recording.interrupted) {
        note(format_args!("annulus: interrupted by {signal}: part 1 has been told"));
        return Ok(status);
    }
    match &state.stopped {
        Some(why) => bail!("the run was stopped: {why}"),
        None if is_done => Ok(ExitCode::SUCCESS),
        None => bail!("part 1 did not confirm the result within {:?}", follower.patience),
    }
}

impl Follower {
    /// Waits for the first part to listen at the meeting point, connects, and joins the run.
    fn join(meeting: Meeting, plan: &Plan, stop: Stop) -> Result<Follower> {
        let Meeting { part, address, token, patience } = meeting;
        let stream = connect(&address, patience, &stop)?;
        configure(&stream).context("cannot use the connection to part 1")?;
        let mut limited = Deadline::new(stream, HANDSHAKE_TIMEOUT);
        let at = || format!("cannot join part 1 at {address}");
        token::connect(&mut limited, PROTOCOL, &token).with_context(at)?;
        let host = Machine::this().host;
        let join =
            Join { index: part.index(), count: part.count(), host, settings: settings(plan) };
        frames::write(&mut limited, &join).with_context(at)?;
        // Part 1 answers once all parts have joined.
        limited.restart(patience.saturating_add(HANDSHAKE_TIMEOUT));
        match frames::read(&mut limited, MAX_JOIN_BYTES) {
            Ok(ToPart::Welcome) => {}
            Ok(ToPart::Refused(why)) => {
                bail!("part 1 at {address} refuses {}: {}", part.name_on(""), printable(&why))
            }
            Ok(_) => bail!("part 1 at {address} sent a message other than a welcome"),
            Err(error) => {
                return Err(anyhow!("part 1 at {address} ended before the run began: {error}"));
            }
        }
        let stream = limited.into_unlimited().context("cannot use the connection to part 1")?;
        stream.set_write_timeout(Some(patience)).context("cannot use the connection to part 1")?;
        let (sender, messages) = mpsc::channel();
        let reader = stream.try_clone().context("cannot use the connection to part 1")?;
        let pass_on = move |message| sender.send(message).is_ok();
        frames::read_all(reader, MAX_MESSAGE_BYTES, pass_on)
            .context("cannot start a thread for part 1")?;
        let state = State {
            messages,
            stage: None,
            stopped: None,
            has_told: false,
            is_done: false,
            is_lost: false,
        };
        Ok(Follower { stop, stream, patience, state: RefCell::new(state) })
    }

    /// Sends a message. If that fails, the reader of the connection reports its end.
    fn send(&self, message: &FromPart) {
        let _ = frames::write(&self.stream, message);
    }

    /// Reports a stage, and waits until all parts have reached it, the run is stopped, or a signal
    /// arrives. Stops the run at the time limit.
    fn barrier(&mut self, stage: Stage) {
        self.send(&FromPart::Reached(stage));
        let stop = self.stop.clone();
        let is_over = |state: &State| {
            state.stage >= Some(stage) || state.stopped.is_some() || stop.has_arrived()
        };
        if !self.wait_until(is_over) {
            let text = format!("the other parts were not ready within {:?}", self.patience);
            self.state.get_mut().stopped = Some(text);
        }
    }

    /// Waits until `done` returns true, and returns true then. Returns false after the time limit.
    fn wait_until(&self, done: impl Fn(&State) -> bool) -> bool {
        // Part 1 has a shorter limit. It reports which part is late before this limit passes.
        let until = clock::now().saturating_add(self.patience).saturating_add(HANDSHAKE_TIMEOUT);
        while !done(&self.state.borrow()) {
            if clock::now() >= until {
                return false;
            }
            self.handle_messages(CHECK_PERIOD);
        }
        true
    }

    /// Handles what the first part has sent; waits for the first message for at most `limit`.
    fn handle_messages(&self, limit: Duration) {
        let mut state = self.state.borrow_mut();
        let mut next = state.messages.recv_timeout(limit);
        loop {
            match next {
                Ok(Ok(ToPart::Go(stage))) => state.stage = Some(stage),
                Ok(Ok(ToPart::Stop(why))) => state.stopped = Some(printable(&why)),
                Ok(Ok(ToPart::Lost(text))) => note(format_args!("annulus: {}", printable(&text))),
                Ok(Ok(ToPart::Done)) => state.is_done = true,
                Ok(Ok(ToPart::Welcome | ToPart::Refused(_))) => {}
                Ok(Err(why)) => {
                    state.is_lost = true;
                    if !state.is_done && state.stopped.is_none() {
                        let text = format!("part 1, which collects the results, was lost: {why}");
                        state.stopped = Some(text);
                    }
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return,
            }
            next = state.messages.recv_timeout(Duration::ZERO);
        }
    }
}

impl Observer for Follower {
    fn connected(&mut self) {
        self.barrier(Stage::Connected);
    }

    fn window_opened(&mut self) {
        self.barrier(Stage::Measuring);
    }

    fn progress(&mut self, progress: Progress) {
        self.send(&FromPart::Responses(progress.responses));
    }

    fn interval(&mut self, interval: &Interval) {
        self.send(&FromPart::Interval(Box::new(interval.clone())));
    }

    fn is_interrupted(&self) -> bool {
        self.handle_messages(Duration::ZERO);
        let mut state = self.state.borrow_mut();
        if let Some((signal, _)) = self.stop.reason().filter(|_| !state.has_told) {
            state.has_told = true;
            self.send(&FromPart::Interrupted(signal.to_owned()));
        }
        state.stopped.is_some() || self.stop.has_arrived()
    }
}

/// Connects to the meeting point. Tries again until the first part listens.
fn connect(address: &annulus_load::Address, patience: Duration, stop: &Stop) -> Result<TcpStream> {
    let until = clock::now().saturating_add(patience);
    let try_each = || -> Result<TcpStream> {
        Ok(frames::connect(&address.resolve()?, HANDSHAKE_TIMEOUT.min(patience))?)
    };
    loop {
        let error = match try_each() {
            Ok(stream) => return Ok(stream),
            Err(error) => error,
        };
        if stop.has_arrived() {
            bail!("interrupted while waiting for part 1 at {address}");
        }
        if clock::now() >= until {
            bail!(
                "part 1 does not answer at {address} within {patience:?}: {error:#}; start it, \
                 check --meet, or wait longer (--meet-timeout)"
            );
        }
        thread::sleep(CHECK_PERIOD);
    }
}
