//! Choosing connections to move from a busy shard to an idle one.

use crate::time::Instant;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Length of a period. A connection is busy in a period if it answered a request in it.
const BUSY_PERIOD: Duration = Duration::from_millis(100);
/// Number of requests of a connection per read of the clock.
const REQUESTS_PER_CLOCK_READ: u32 = 16;

/// Counts the busy connections of each shard, and decides which of them
/// [`Shard::move_stream`](super::Shard::move_stream) should move to another shard. All shards share
/// one balance. A program that does not use it pays nothing.
///
/// Connections are distributed when they are accepted, before it is known how busy they will be. If
/// one shard's connections are busy and another's are idle, a core is idle too. A connection is
/// busy if it answered a request in the last period of 100 ms. While a shard has at least two more
/// busy connections than the least busy shard, and the difference is at least a quarter of its own
/// number, a connection that has just been served moves to that shard.
///
/// ```
/// use annulus::net::TcpStream;
/// use annulus::shards::{Balance, Shard};
/// use std::pin::Pin;
///
/// /// Answers requests on the shard `at`.
/// fn serve(
///     shards: Shard,
///     at: usize,
///     mut stream: TcpStream,
///     balance: Balance,
/// ) -> Pin<Box<dyn Future<Output = std::io::Result<()>>>> {
///     Box::pin(async move {
///         let mut connection = balance.connection(at);
///         while let Some(request) = stream.recv().await? {
///             stream.send(request).await?;
///             if let Some(to) = connection.count() {
///                 let onward = shards.clone();
///                 let serve = move |stream| serve(onward, to, stream, balance);
///                 shards.move_stream(stream, to, serve).await?;
///                 return Ok(());
///             }
///         }
///         Ok(())
///     })
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Balance(Arc<BalanceState>);

#[derive(Debug)]
struct BalanceState {
    began: Instant,
    /// The number of the current period. The first shard that sees a period end updates it.
    period: AtomicU64,
    shards: Box<[Load]>,
}

/// The load of a shard, in cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Load {
    /// Connections that were busy here, in this period and in the previous one. The index is the
    /// period modulo 2.
    busy: [Count; 2],
    /// Connections that arrived from another shard in this period (`came`), and connections that
    /// moved to another shard (`left`).
    came: Count,
    left: Count,
}

/// A count for one period. The upper half of the word is the number of the period.
#[derive(Debug, Default)]
struct Count(AtomicU64);

impl Count {
    /// Returns the count, or 0 if it belongs to another period.
    fn of(&self, period: u64) -> u64 {
        Self::within(self.0.load(Ordering::Relaxed), period)
    }

    fn within(value: u64, period: u64) -> u64 {
        if value >> 32 == period { value & u64::from(u32::MAX) } else { 0 }
    }

    fn add(&self, period: u64) {
        let more = |value| Some(period << 32 | (Self::within(value, period) + 1));
        _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    }
}

impl Load {
    /// Returns the count of connections that were busy in a period.
    fn busy(&self, period: u64) -> &Count {
        &self.busy[period as usize % 2]
    }

    /// Returns the number of connections that are expected to be busy in this period: the number in
    /// the previous period, adjusted for moves since then.
    fn expected(&self, period: u64) -> u64 {
        let busy = self.busy(period - 1).of(period - 1) + self.came.of(period);
        busy.saturating_sub(self.left.of(period))
    }
}

impl Balance {
    /// Creates a balance for `shards` shards without load.
    pub fn new(shards: usize) -> Self {
        let shards = (0..shards).map(|_| Load::default()).collect();
        Self(Arc::new(BalanceState { began: Instant::now(), period: AtomicU64::new(1), shards }))
    }

    /// Returns a counter for one connection of a shard.
    ///
    /// # Panics
    /// If `shard` is out of range.
    pub fn connection(&self, shard: usize) -> Balanced {
        let shards = self.0.shards.len();
        assert!(
            shard < shards,
            "shard {shard} is out of range: the balance has {shards} shards, starting at 0"
        );
        Balanced { balance: self.clone(), shard, period: 0, requests: 0 }
    }

    /// Reads the clock, updates the period and returns it.
    fn update_period(&self) -> u64 {
        let now =
            1 + (self.0.began.elapsed().as_nanos() / BUSY_PERIOD.as_nanos()) as u64 % (1 << 32);
        if self.0.period.load(Ordering::Relaxed) != now {
            self.0.period.store(now, Ordering::Relaxed);
        }
        now
    }

    /// Returns the shard to which a connection of this shard should move in this period, if any,
    /// and counts the move.
    fn target(&self, shard: usize, period: u64) -> Option<usize> {
        let shards = &self.0.shards;
        let expected = shards[shard].expected(period);
        let others = shards.iter().enumerate().filter(|(index, _)| *index != shard);
        let others = others.map(|(index, load)| (index, load.expected(period)));
        let (least, fewest) = others.min_by_key(|(_, expected)| *expected)?;
        let more = expected.saturating_sub(fewest);
        let moves = more >= 2 && more * 4 >= expected;
        moves.then(|| {
            shards[shard].left.add(period);
            shards[least].came.add(period);
            least
        })
    }
}

/// The counter of one connection in a [`Balance`].
#[derive(Debug)]
pub struct Balanced {
    balance: Balance,
    shard: usize,
    /// The last period in which the connection was counted or moved.
    period: u64,
    /// Number of requests so far. The clock is read once per `REQUESTS_PER_CLOCK_READ`.
    requests: u32,
}

impl Balanced {
    /// Counts an answered request. Call it on the connection's shard. Returns the shard to which
    /// the connection should move before the next request, if any.
    #[inline]
    pub fn count(&mut self) -> Option<usize> {
        self.requests = self.requests.wrapping_add(1);
        let shared = &self.balance.0;
        let mut period = shared.period.load(Ordering::Relaxed);
        if self.requests % REQUESTS_PER_CLOCK_READ == 1 {
            period = self.balance.update_period();
        }
        if period == self.period {
            return None;
        }
        self.period = period;
        let target = self.balance.target(self.shard, period);
        if target.is_none() {
            shared.shards[self.shard].busy(period).add(period);
        }
        target
    }
}
