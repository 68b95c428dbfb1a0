//! What a seed decides before the run.

use crate::letters::Correspondence;
use annulus::sim::{Profile, Sim};
use annulus::{Builder, Operations, Runtime};
use annulus_ring::SqPoll;
use annulus_sim::Random;
use std::rc::Rc;
use std::time::Duration;

/// What client and server say to each other on one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// The server sends back what it gets, the very leases.
    Echo,
    /// Both talk at once, each its own text, and end when they have done.
    Both,
    /// Question, answer, question, answer.
    Ask,
    /// The client sends its text and drops the stream.
    Leave,
    /// The client resets the connection somewhere in its text.
    Abort,
    /// The client's task is aborted at some moment.
    Vanish,
}

impl Manner {
    const ALL: [Self; 6] =
        [Self::Echo, Self::Both, Self::Ask, Self::Leave, Self::Abort, Self::Vanish];

    /// Whether the server hears the whole text.
    pub(crate) fn is_complete(self) -> bool {
        !matches!(self, Self::Abort | Self::Vanish)
    }
}

/// One connection's part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Script {
    pub(crate) manner: Manner,
    /// Which text: the server's differs from the client's by its lowest bit.
    pub(crate) key: u64,
    /// Bytes that the client says.
    pub(crate) up: u64,
    /// Bytes that the server says, where it has a text of its own.
    pub(crate) down: u64,
}

/// A run's settings.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) scripts: Vec<Script>,
    pub(crate) correspondences: Vec<Correspondence>,
    pub(crate) whispers: Vec<Correspondence>,
    /// Most times that somebody gives up waiting, and then waits again.
    pub(crate) cancels: u64,
    /// Of a thousand polls, those with a waker that panics.
    pub(crate) panics: u64,
    /// Tasks that end badly.
    pub(crate) disturbances: u64,
    /// The root future panics when everything else has happened.
    pub(crate) root_panics: bool,
    /// Most bytes of one write.
    pub(crate) write: u64,
    pub(crate) backlog: u32,
    profile: Profile,
    queues: (u32, u32),
    buffers: u32,
    bounds: (u32, usize),
    operations: Operations,
    polls: Option<SqPoll>,
    look: Duration,
    /// From how many bytes on a send is not copied.
    lend: Option<usize>,
}

impl Plan {
    /// The plan of a seed.
    pub(crate) fn of(seed: u64) -> Self {
        // Other numbers than those that the simulation draws from its own seed.
        let random = &mut Random::new(seed ^ 0x5EED_0F7A_1C5A_11E5);
        let most = random.pick(&[1, 300, 5_000, 5_000, 40_000, 200_000]);
        let connections = if most > 100_000 { 1 } else { random.between(1, 6) };
        Self {
            seed,
            scripts: (0..connections).map(|number| script(random, number, most)).collect(),
            cancels: random.pick(&[0, 1, 3]),
            write: if most <= 300 { random.pick(&[1, 20]) } else { random.pick(&[400, 70_000]) },
            backlog: random.pick(&[1, 128]),
            profile: random.pick(&[Profile::current as fn() -> Profile, Profile::old])(),
            queues: queues(random),
            buffers: random.pick(&[2, 4, 64]),
            bounds: (random.pick(&[1, 4096, 65_536]), random.pick(&[1, 1000, 65_536])),
            operations: operations(random),
            correspondences: correspondences(random),
            whispers: correspondences(random),
            polls: random.pick(&[None, None, None, Some(POLLER)]),
            look: random.pick(&[Duration::ZERO, Duration::ZERO, Duration::from_micros(30)]),
            lend: random.pick(&[None, None, Some(1), Some(4000)]),
            panics: random.pick(&[0, 0, 10, 200]),
            disturbances: random.pick(&[0, 0, 1, 5]),
            root_panics: random.pick(&[false, false, true]),
        }
    }

    /// The same, but everybody gives up again and again.
    pub(crate) fn impatient(self) -> Self {
        Self { cancels: 100, ..self }
    }

    pub(crate) fn sim(&self) -> Rc<Sim> {
        Sim::builder(self.seed).chaos().profile(self.profile.clone()).build()
    }

    /// The runtime's settings: small pools, small queues, small bounds.
    pub(crate) fn runtime(&self) -> Builder {
        // Long enough for the slowest network: nothing is cut off, unless by its own client.
        let long = Duration::from_secs(3600);
        let builder = Runtime::builder();
        let builder = self.polls.into_iter().fold(builder, Builder::sq_poll);
        // An old kernel has only half of it.
        let lend = self.lend.filter(|_| self.profile.zero_copy_report);
        builder
            .zero_copy_threshold(lend)
            .busy_poll(self.look)
            .sq_entries(self.queues.0)
            .cq_entries(self.queues.1)
            .recv_buffers(4096, self.buffers)
            .recv_bound(self.bounds.0)
            .send_bound(self.bounds.1)
            .operations(self.operations)
            .linger(long)
            .shutdown_timeout(long)
    }
}

/// A kernel thread that takes submissions.
const POLLER: SqPoll = SqPoll { idle: Duration::from_millis(1), cpu: None };

fn script(random: &mut Random, number: u64, most: u64) -> Script {
    Script {
        manner: random.pick(&Manner::ALL),
        key: number << 1,
        up: random.between(0, most),
        down: random.between(0, most),
    }
}

/// Clients that write letters: often nobody.
fn correspondences(random: &mut Random) -> Vec<Correspondence> {
    let clients = random.pick(&[0, 0, 1, 3]);
    let part = |key| Correspondence {
        key,
        letters: random.between(1, 30),
        most: random.pick(&[0, 100, 1400, 9000]),
    };
    (0..clients).map(part).collect()
}

/// Mostly those that everybody has.
fn operations(random: &mut Random) -> Operations {
    let others = random.pick(&Operations::ALL);
    random.pick(&[Operations::default(), others])
}

/// Entries of the submission queue, and of the completion queue, which is no smaller.
fn queues(random: &mut Random) -> (u32, u32) {
    let entries = random.pick(&[1, 2, 8, 256]);
    (entries, random.pick(&[2, 8, 4096]).max(entries))
}
