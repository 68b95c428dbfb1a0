//! The first part of a run, which gathers the others.

use super::Meeting;
use super::protocol::{
    FromPart, HANDSHAKE_TIMEOUT, Join, MAX_JOIN_BYTES, MAX_MESSAGE_BYTES, PROTOCOL, Stage, ToPart,
    configure, differences, settings,
};
use crate::frames::{self, Deadline};
use crate::load::live::ProgressLine;
use crate::output::note;
use crate::text::printable;
use crate::token::{self, Token};
use annulus_load::recording::{Interval, Machine, Recording};
use annulus_load::{LiveSum, Observer, Part, PartResult, Plan, Progress, clock};
use anyhow::{Context, Result, anyhow, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::cell::RefCell;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// How often to check for signals while waiting.
const CHECK_PERIOD: Duration = Duration::from_millis(50);
/// The maximum number of handshakes at once; further connections wait.
const MAX_HANDSHAKES: usize = 64;
/// The maximum number of refused connections that are reported.
const MAX_REPORTED_REFUSALS: usize = 10;

/// The index of a part, and its message or the reason why its connection has ended.
type Event = (usize, Result<FromPart, String>);

/// Coordinates a run from its first part: as the observer of that part's load, it makes all parts
/// start together and sums their progress.
pub(in crate::load) struct First<'a> {
    plan: &'a Plan,
    patience: Duration,
    line: &'a mut ProgressLine,
    state: RefCell<State>,
}

struct State {
    events: Receiver<Event>,
    others: Vec<Other>,
    sum: LiveSum,
    /// The last stage that all parts have reached.
    stage: Option<Stage>,
    /// Why the run ends early, if it does.
    stopped: Option<String>,
}

/// A part other than the first.
struct Other {
    part: Part,
    host: String,
    stream: TcpStream,
    reached: Option<Stage>,
    responses: u64,
    /// Its result, or the reason why it is missing.
    outcome: Option<Result<Recording, String>>,
}

impl Other {
    fn name(&self) -> String {
        self.part.name_on(&printable(&self.host))
    }

    /// Sends a message. If that fails, the reader of the connection reports its end.
    fn send(&self, message: &ToPart) {
        let _ = frames::write(&self.stream, message);
    }
}

impl<'a> First<'a> {
    /// Listens at the meeting point until every part has joined.
    ///
    /// # Errors
    /// Fails if it cannot listen, if parts are missing after the time limit, or after a signal.
    pub(in crate::load) fn meet(
        meeting: Meeting,
        plan: &'a Plan,
        line: &'a mut ProgressLine,
    ) -> Result<First<'a>> {
        let Meeting { part, address, token, patience } = meeting;
        let addresses = address.resolve()?;
        let listener = TcpListener::bind(&addresses[..]).with_context(|| {
            format!(
                "part 1 cannot listen at the meeting point {address}: use a free port of an \
                 address of its machine"
            )
        })?;
        listener.set_nonblocking(true).context("cannot listen at the meeting point")?;
        let joined = gather(&listener, (part, plan), Arc::new(token), patience, line)?;
        let (sender, events) = mpsc::channel();
        let mut others = Vec::new();
        for (join, stream) in joined {
            let part = Part::new(join.index, join.count)?;
            let reader = stream.try_clone().context("cannot use a connection of a part")?;
            let events = sender.clone();
            let pass_on = move |message| events.send((join.index, message)).is_ok();
            frames::read_all(reader, MAX_MESSAGE_BYTES, pass_on)
                .context("cannot start a thread for a part")?;
            let (reached, responses, outcome) = (None, 0, None);
            others.push(Other { part, host: join.host, stream, reached, responses, outcome });
        }
        others.iter().for_each(|other| other.send(&ToPart::Welcome));
        let sum = LiveSum::new(plan);
        let state = State { events, others, sum, stage: None, stopped: None };
        Ok(First { plan, patience, line, state: RefCell::new(state) })
    }

    /// Waits until every part has reached this stage, and lets all continue. Stops the run if a
    /// part is late.
    fn barrier(&mut self, stage: Stage) {
        let until = clock::now().saturating_add(self.patience);
        loop {
            self.handle_events(CHECK_PERIOD);
            if self.is_interrupted() {
                return;
            }
            let state = self.state.get_mut();
            let waits = |other: &&Other| other.outcome.is_none() && other.reached < Some(stage);
            let Some(late) = state.others.iter().find(waits) else {
                state.stage = Some(stage);
                state.others.iter().for_each(|other| other.send(&ToPart::Go(stage)));
                return;
            };
            if clock::now() >= until {
                let limit = self.patience;
                let text = format!("{} was not ready within {limit:?}", late.name());
                state.stop(&text);
                return;
            }
        }
    }

    /// Handles what the other parts have sent; waits for the first message for at most `limit`.
    fn handle_events(&self, limit: Duration) {
        let mut state = self.state.borrow_mut();
        let mut next = state.events.recv_timeout(limit);
        loop {
            match next {
                Ok((index, event)) => {
                    if let Some(text) = state.handle(index, event) {
                        self.line.say(&format!("annulus: {text}"));
                    }
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return,
            }
            next = state.events.recv_timeout(Duration::ZERO);
        }
    }

    /// Shows the intervals that all parts have completed.
    fn show_intervals(&mut self) {
        let complete = self.state.get_mut().sum.take();
        complete.iter().for_each(|interval| self.line.interval(interval));
    }

    /// Waits for the results of the other parts and merges them with the result of this part. Also
    /// returns why the run was stopped, if it was.
    ///
    /// # Errors
    /// If this part could not start. The other parts are then told to stop.
    pub(in crate::load) fn finish(
        mut self,
        own: Result<Recording>,
    ) -> Result<(Recording, Option<String>)> {
        let own = own.inspect_err(|error| {
            self.state.get_mut().stop(&format!("part 1 could not start: {error:#}"));
        })?;
        if self.line.is_interrupted() {
            self.state.get_mut().stop("part 1 was interrupted");
        } else if own.seconds == 0.0 {
            let first = own.first_error.as_deref().unwrap_or("it measured nothing");
            self.state.get_mut().stop(&format!("part 1 could not start: {first}"));
        }
        let until = clock::now().saturating_add(self.patience);
        while self.state.get_mut().others.iter().any(|other| other.outcome.is_none())
            && clock::now() < until
        {
            self.handle_events(CHECK_PERIOD);
        }
        let state = self.state.get_mut();
        let mut results =
            vec![PartResult { part: self.plan.part, host: Machine::this().host, outcome: Ok(own) }];
        for other in &mut state.others {
            let late = || Err(format!("it sent no result within {:?}", self.patience));
            let outcome = other.outcome.take().unwrap_or_else(late);
            other.send(&ToPart::Done);
            results.push(PartResult { part: other.part, host: other.host.clone(), outcome });
        }
        results.sort_by_key(|result| result.part.index());
        Ok((Recording::merge(self.plan, &results), state.stopped.take()))
    }
}

impl State {
    /// Handles a message of a part. Returns what to tell the user, if anything.
    fn handle(&mut self, index: usize, event: Result<FromPart, String>) -> Option<String> {
        let place = self.others.iter().position(|other| other.part.index() == index)?;
        let other = &mut self.others[place];
        if other.outcome.is_some() {
            // The part is complete, or it is already reported as lost.
            return None;
        }
        let has_started = self.stage == Some(Stage::Measuring);
        match event {
            Ok(FromPart::Reached(stage)) => other.reached = Some(stage),
            Ok(FromPart::Interval(interval)) => self.sum.add(index, &interval),
            Ok(FromPart::Responses(count)) => other.responses = count,
            Ok(FromPart::Interrupted(signal)) => {
                let text = format!("{} was interrupted by {}", other.name(), printable(&signal));
                self.stop(&text);
            }
            Ok(FromPart::Recording(recording)) => match recording.check() {
                Ok(()) => {
                    let fault = recording.first_error.clone();
                    let name = other.name();
                    other.outcome = Some(Ok(*recording));
                    self.sum.remove(index);
                    if !has_started {
                        let fault = fault.as_deref().unwrap_or("it measured nothing").to_owned();
                        self.stop(&format!("{name} could not start: {fault}"));
                    }
                }
                Err(error) => {
                    return self.lose(place, &format!("its result is not usable: {error}"));
                }
            },
            Ok(FromPart::Failed(error)) => {
                return self.lose(place, &format!("it failed: {}", printable(&error)));
            }
            Err(why) => return self.lose(place, &why),
        }
        None
    }

    /// Continues without a part, or stops if measuring has not begun.
    fn lose(&mut self, place: usize, why: &str) -> Option<String> {
        let has_started = self.stage == Some(Stage::Measuring);
        let other = &mut self.others[place];
        other.outcome = Some(Err(why.to_owned()));
        self.sum.remove(other.part.index());
        let name = other.name();
        if !has_started {
            self.stop(&format!("{name} was lost before measuring began: {why}"));
            return None;
        }
        let text = format!("{name} was lost, so the results are partial: {why}");
        let lost = ToPart::Lost(text.clone());
        self.others.iter().filter(|other| other.outcome.is_none()).for_each(|other| {
            other.send(&lost);
        });
        Some(text)
    }

    /// Tells the other parts to end the run, unless this has already happened.
    fn stop(&mut self, why: &str) {
        if self.stopped.is_none() {
            self.stopped = Some(why.to_owned());
            self.others.iter().for_each(|other| other.send(&ToPart::Stop(why.to_owned())));
        }
    }
}

impl Observer for First<'_> {
    fn connected(&mut self) {
        self.barrier(Stage::Connected);
        self.line.connected();
    }

    fn window_opened(&mut self) {
        // Reading the server's usage must not delay this part after the others have started.
        self.line.window_opened();
        self.barrier(Stage::Measuring);
    }

    fn window_closed(&mut self) {
        self.line.window_closed();
    }

    fn progress(&mut self, progress: Progress) {
        self.handle_events(Duration::ZERO);
        self.show_intervals();
        let others = self.state.get_mut().others.iter().map(|other| other.responses).sum::<u64>();
        let responses = progress.responses + others;
        self.line.progress(Progress { responses, requests: self.plan.requests, ..progress });
    }

    fn interval(&mut self, interval: &Interval) {
        self.state.get_mut().sum.add(0, interval);
        self.show_intervals();
    }

    fn is_interrupted(&self) -> bool {
        self.handle_events(Duration::ZERO);
        if self.line.is_interrupted() {
            self.state.borrow_mut().stop("part 1 was interrupted");
        }
        self.state.borrow().stopped.is_some()
    }
}

/// Accepts connections until every part has joined.
fn gather(
    listener: &TcpListener,
    (own, plan): (Part, &Plan),
    token: Arc<Token>,
    patience: Duration,
    line: &ProgressLine,
) -> Result<Vec<(Join, TcpStream)>> {
    let until = clock::now().saturating_add(patience);
    let (sender, arrivals) = mpsc::channel::<(SocketAddr, Result<(Join, TcpStream)>)>();
    let (mut joined, mut handshakes, mut refusals) = (Vec::new(), 0, 0);
    while joined.len() + 1 < own.count() {
        if line.is_interrupted() {
            bail!("interrupted while waiting for the other parts");
        }
        if clock::now() >= until {
            bail!("{}", missing(own, &joined, patience));
        }
        let arrived = arrivals.try_recv();
        if let Ok((address, arrival)) = arrived {
            handshakes -= 1;
            let admitted = arrival.and_then(|arrival| admit(arrival, (own, plan), &joined));
            match admitted {
                Ok(arrival) => joined.push(arrival),
                Err(error) => {
                    refusals += 1;
                    if refusals <= MAX_REPORTED_REFUSALS {
                        note(format_args!(
                            "annulus: refused a connection from {address} at the meeting point: \
                             {error:#}"
                        ));
                    }
                }
            }
            continue;
        }
        if handshakes == MAX_HANDSHAKES {
            thread::sleep(CHECK_PERIOD);
            continue;
        }
        let limit = Timespec::try_from(CHECK_PERIOD).context("cannot wait")?;
        let _ = poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&limit));
        let (stream, address) = match listener.accept() {
            Ok(accepted) => accepted,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(_) => {
                // For lack of descriptors, for example: the connection is still waiting, so `poll`
                // would return at once.
                thread::sleep(CHECK_PERIOD);
                continue;
            }
        };
        handshakes += 1;
        let (greeted, token) = (sender.clone(), Arc::clone(&token));
        let greet = move || _ = greeted.send((address, greet(stream, &token)));
        if let Err(error) = thread::Builder::new().spawn(greet) {
            thread::sleep(CHECK_PERIOD);
            _ = sender.send((address, Err(anyhow!("cannot start a thread: {error}"))));
        }
    }
    Ok(joined)
}

/// Performs the handshake of a connection, and reads which part it is.
fn greet(stream: TcpStream, token: &Token) -> Result<(Join, TcpStream)> {
    stream.set_nonblocking(false)?;
    configure(&stream)?;
    let mut limited = Deadline::new(stream, HANDSHAKE_TIMEOUT);
    token::accept(&mut limited, PROTOCOL, token)?;
    let join = frames::read(&mut limited, MAX_JOIN_BYTES)?;
    Ok((join, limited.into_unlimited()?))
}

/// Returns a part that fits the run; otherwise refuses it.
fn admit(
    (join, stream): (Join, TcpStream),
    (own, plan): (Part, &Plan),
    joined: &[(Join, TcpStream)],
) -> Result<(Join, TcpStream)> {
    let part = Part::new(join.index, join.count);
    let twin = joined.iter().find(|(other, _)| other.index == join.index);
    let fault = match (part, twin) {
        (Err(error), _) => Some(error.to_string()),
        (Ok(part), _) if part.count() != own.count() => Some(format!(
            "it is one of {} parts, but part 1 is one of {}",
            part.count(),
            own.count()
        )),
        (Ok(part), _) if part.index() == 0 => {
            Some("it is part 1 as well: give each part its own number".to_owned())
        }
        (Ok(part), Some((twin, _))) => {
            Some(format!("{} has already joined", part.name_on(&printable(&twin.host))))
        }
        (Ok(part), None) => differences(&settings(plan), &join.settings).map(|differences| {
            format!(
                "{} has another load than part 1 ({}): give all parts the same options",
                part.name_on(&printable(&join.host)),
                printable(&differences)
            )
        }),
    };
    let Some(fault) = fault else { return Ok((join, stream)) };
    let _ = frames::write(&stream, &ToPart::Refused(fault.clone()));
    Err(anyhow!(fault))
}

/// Formats which parts have not joined.
fn missing(own: Part, joined: &[(Join, TcpStream)], patience: Duration) -> String {
    let is_missing = |index: &usize| joined.iter().all(|(join, _)| join.index != *index);
    let missing: Vec<_> =
        (1..own.count()).filter(is_missing).map(|index| (index + 1).to_string()).collect();
    format!(
        "only {} of {} parts met within {patience:?}, without part {}: start all parts with the \
         same --meet and token, or wait longer (--meet-timeout)",
        joined.len() + 1,
        own.count(),
        missing.join(", ")
    )
}
