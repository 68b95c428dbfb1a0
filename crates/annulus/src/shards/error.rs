//! The error of a run of shards.

use crate::tasks::panic_message;
use std::any::Any;
use std::fmt;
use std::io;

/// The failure of a shard, which stopped all shards.
#[derive(Debug)]
pub struct ShardError<E> {
    /// The index of the shard that failed first.
    pub shard: usize,
    /// The failure of that shard.
    pub cause: Cause<E>,
}

/// The failure of a shard.
///
/// ```
/// use annulus::shards::{Cause, Pinning, Shards};
///
/// let shards = Shards::new(2).pinning(Pinning::None);
/// let failed = shards.run(async |shard| match shard.index() {
///     0 => std::future::pending::<Result<(), String>>().await,
///     _ => Err("no such upstream".to_owned()),
/// });
/// let error = failed.unwrap_err(); // Shard 0 was stopped.
/// match error.cause {
///     Cause::Main(why) => assert_eq!((error.shard, &*why), (1, "no such upstream")),
///     Cause::Panicked(payload) => std::panic::resume_unwind(payload),
///     other => panic!("{other}"),
/// }
/// ```
#[non_exhaustive]
pub enum Cause<E> {
    /// The thread could not be started or pinned, the runtime could not be built, or the driver
    /// failed permanently. `Interrupted` if [`Handle::stop`](crate::Handle::stop) stopped it.
    Runtime(io::Error),
    /// The shard's main returned this error.
    Main(E),
    /// The shard's main panicked with this payload. The panic hook has already run. Pass it to
    /// [`std::panic::resume_unwind`].
    Panicked(Box<dyn Any + Send>),
}

impl<E: fmt::Display> fmt::Display for ShardError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shard {}: {}", self.shard, self.cause)
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for ShardError<E> {}

impl<E: fmt::Display> fmt::Display for Cause<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Runtime(error) => error.fmt(f),
            Self::Main(error) => error.fmt(f),
            Self::Panicked(panic) => write!(f, "panicked: {}", panic_message(panic)),
        }
    }
}

impl<E: fmt::Debug> fmt::Debug for Cause<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Runtime(error) => f.debug_tuple("Runtime").field(error).finish(),
            Self::Main(error) => f.debug_tuple("Main").field(error).finish(),
            Self::Panicked(panic) => {
                f.debug_tuple("Panicked").field(&panic_message(panic)).finish()
            }
        }
    }
}

impl From<ShardError<io::Error>> for io::Error {
    /// Keeps the kind of the error, and adds the shard to its text.
    fn from(error: ShardError<io::Error>) -> Self {
        let kind = match &error.cause {
            Cause::Runtime(error) | Cause::Main(error) => error.kind(),
            Cause::Panicked(_) => io::ErrorKind::Other,
        };
        Self::new(kind, error.to_string())
    }
}
