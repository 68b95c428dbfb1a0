//! The decisions that a seed makes before its run.

use crate::sim::datagrams::DatagramPlan;
use annulus::sim::{Profile, Sim};
use annulus::{Builder, Runtime};
use annulus_sim::Random;
use rustix::io::Errno;
use std::rc::Rc;
use std::time::Duration;

/// How client and server use one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exchange {
    /// The server echoes everything that it receives.
    Echo,
    /// Both sides send their own payload at the same time, and end after it.
    Both,
    /// The client sends a piece and waits for its echo before it sends the next one.
    Pieces,
    /// The client sends its payload and drops the stream.
    SendOnly,
    /// The client resets the connection somewhere in its payload.
    Reset,
    /// The client's task is aborted at some point.
    AbortTask,
}

impl Exchange {
    const ALL: [Self; 6] =
        [Self::Echo, Self::Both, Self::Pieces, Self::SendOnly, Self::Reset, Self::AbortTask];

    /// Returns true if the server receives the whole payload.
    pub(crate) fn is_complete(self) -> bool {
        !matches!(self, Self::Reset | Self::AbortTask)
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamPlan {
    pub(crate) exchange: Exchange,
    /// Seed of the payload. The server's key differs from the client's in the lowest bit.
    pub(crate) key: u64,
    /// Bytes that the client sends.
    pub(crate) up: u64,
    /// Bytes that the server sends, if it has its own payload.
    pub(crate) down: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) streams: Vec<StreamPlan>,
    pub(crate) udp_clients: Vec<DatagramPlan>,
    pub(crate) unix_pairs: Vec<DatagramPlan>,
    /// Maximum number of times that a wait is dropped and restarted.
    pub(crate) cancels: u64,
    /// Polls per thousand that get a waker that panics.
    pub(crate) panics: u64,
    /// Tasks that panic, or are dropped with a value that panics.
    pub(crate) faulty_tasks: u64,
    /// Whether the root future panics after everything else.
    pub(crate) root_panics: bool,
    /// Maximum bytes per write.
    pub(crate) write: u64,
    pub(crate) backlog: u32,
    profile: Profile,
    queues: (u32, u32),
    buffers: u32,
    bounds: (usize, usize),
    busy_poll: Duration,
    /// Sends of at least this many bytes are zero-copy.
    zero_copy_threshold: Option<usize>,
}

impl Plan {
    pub(crate) fn of(seed: u64) -> Self {
        // The simulation draws other numbers from the same seed.
        let random = &mut Random::new(seed ^ 0x5EED_0F7A_1C5A_11E5);
        let most = random.pick(&[1, 300, 5_000, 5_000, 40_000, 200_000]);
        let connections = if most > 100_000 { 1 } else { random.between(1, 6) };
        Self {
            seed,
            streams: (0..connections).map(|number| stream_plan(random, number, most)).collect(),
            cancels: random.pick(&[0, 1, 3]),
            write: if most <= 300 { random.pick(&[1, 20]) } else { random.pick(&[400, 70_000]) },
            backlog: random.pick(&[1, 128]),
            profile: random.pick(&[Profile::current as fn() -> Profile, Profile::old])(),
            queues: queues(random),
            buffers: random.pick(&[2, 4, 64]),
            bounds: (random.pick(&[1, 4096, 65_536]), random.pick(&[1, 1000, 65_536])),
            udp_clients: datagram_plans(random),
            unix_pairs: datagram_plans(random),
            busy_poll: random.pick(&[Duration::ZERO, Duration::ZERO, Duration::from_micros(30)]),
            zero_copy_threshold: random.pick(&[None, None, Some(1), Some(4000)]),
            panics: random.pick(&[0, 0, 10, 200]),
            faulty_tasks: random.pick(&[0, 0, 1, 5]),
            root_panics: random.pick(&[false, false, true]),
        }
    }

    /// Changes the plan so that each wait is dropped and restarted up to 100 times.
    pub(crate) fn with_many_cancels(self) -> Self {
        Self { cancels: 100, ..self }
    }

    /// Changes the plan to a machine without io_uring.
    pub(crate) fn without_ring(self) -> Self {
        Self { profile: self.profile.refusing(Errno::PERM), ..self }
    }

    pub(crate) fn sim(&self) -> Rc<Sim> {
        Sim::builder(self.seed).chaos().profile(self.profile.clone()).build()
    }

    /// Returns the runtime's settings: small pools, queues and bounds.
    pub(crate) fn runtime(&self) -> Builder {
        // Long enough for the slowest network, so that only its own client cuts off a stream.
        let long = Duration::from_secs(3600);
        let has_ring = self.profile.refusal.is_none();
        // An old kernel does not report copies.
        let reports = has_ring && self.profile.zero_copy_report;
        Runtime::builder()
            .zero_copy_threshold(self.zero_copy_threshold.filter(|_| reports))
            .busy_poll(if has_ring { self.busy_poll } else { Duration::ZERO })
            .sq_entries(self.queues.0)
            .cq_entries(self.queues.1)
            .stream_buffer_size(4096)
            .stream_buffer_count(self.buffers)
            .unread_limit(self.bounds.0)
            .unsent_limit(self.bounds.1)
            .linger(long)
            .shutdown_timeout(long)
    }
}

fn stream_plan(random: &mut Random, number: u64, most: u64) -> StreamPlan {
    StreamPlan {
        exchange: random.pick(&Exchange::ALL),
        key: number << 1,
        up: random.between(0, most),
        down: random.between(0, most),
    }
}

/// Returns the plans of UDP clients or of pairs of Unix sockets, often none.
fn datagram_plans(random: &mut Random) -> Vec<DatagramPlan> {
    let clients = random.pick(&[0, 0, 1, 3]);
    let plan = |key| DatagramPlan {
        key,
        count: random.between(1, 30),
        most: random.pick(&[0, 100, 1400, 9000]),
    };
    (0..clients).map(plan).collect()
}

/// Returns the entries of the submission queue and of the completion queue, which is at least as
/// large.
fn queues(random: &mut Random) -> (u32, u32) {
    let entries = random.pick(&[1, 2, 8, 256]);
    (entries, random.pick(&[2, 8, 4096]).max(entries))
}
