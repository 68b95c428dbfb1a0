//! The counters of a driver. The runtime above it also counts here, and sets the gauges.

/// Defines the counters and their list, so that no report can miss one.
macro_rules! counters {
    ($($(#[doc = $help:literal])+ pub $name:ident: u64,)+) => {
        /// Event counts since the driver was created, and a few gauges.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Counters {
            $($(#[doc = $help])+ pub $name: u64,)+
        }

        impl Counters {
            /// Iterates over all counters with their names, descriptions and values.
            pub fn iter(&self) -> impl Iterator<Item = Counter> {
                [$(Counter {
                    name: stringify!($name),
                    help: concat!($($help),+).trim_ascii(),
                    value: self.$name,
                },)+].into_iter()
            }
        }
    };
}

/// One of the [`Counters`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counter {
    /// The name of the field in [`Counters`].
    pub name: &'static str,
    /// A description in one or two sentences.
    pub help: &'static str,
    /// The value when the counters were read.
    pub value: u64,
}

impl Counter {
    /// Returns true if the value is a current amount, which can fall, instead of a count of events.
    pub fn is_gauge(&self) -> bool {
        matches!(self.name, "memory_held" | "memory_limit" | "streams_paused")
    }
}

counters! {
    /// Calls to `io_uring_enter` or `epoll_pwait`.
    pub enters: u64,
    /// Busy polls before a sleep.
    pub busy_polls: u64,
    /// Busy polls that found something.
    pub busy_poll_hits: u64,
    /// Operations submitted.
    pub sqes: u64,
    /// Completions taken.
    pub cqes: u64,
    /// Turns that found the completion queue overflowed.
    pub overflows: u64,
    /// Receives that found no buffer.
    pub enobufs: u64,
    /// Completions whose slot has been freed or reused. They are dropped.
    pub late_completions: u64,
    /// Operations that found the submission queue full, so that entries were submitted before the
    /// end of the turn.
    pub queue_full: u64,
    /// Receives into heap memory instead of pool buffers, and leases copied out of a pool that is
    /// short of buffers.
    pub heap_receives: u64,
    /// Sends made directly, without going through the driver, that the kernel accepted in whole or
    /// in part. Each is a system call in addition to `enters`.
    pub direct_sends: u64,
    /// Bytes of streams that were copied to be sent: borrowed ones that were not sent directly, and
    /// small chunks behind others in the queue.
    pub copied_bytes: u64,
    /// Bytes that copies have moved from one stream to another through a pipe of the kernel,
    /// without a copy in the process.
    pub spliced_bytes: u64,
    /// Zero-copy sends.
    pub zero_copy_sends: u64,
    /// Zero-copy sends that the kernel reports to have copied, as it always does on the loopback.
    /// Reported from Linux 6.2 on.
    pub zero_copy_copied: u64,
    /// Pieces received into memory that the network stack owns.
    pub zero_copy_receives: u64,
    /// Times that a listener paused because no descriptors were left.
    pub accept_pauses: u64,
    /// Connections that were reset, or failed, before they were accepted. Listeners skip them.
    pub aborted_accepts: u64,
    /// File calls made on the loop.
    pub file_inline: u64,
    /// File calls tried on the loop that did not find their data in memory.
    pub file_misses: u64,
    /// File calls made by the ring.
    pub file_ring: u64,
    /// File calls made by the ring with a registered buffer; also counted in `file_ring`.
    pub file_registered: u64,
    /// File calls that the kernel made without a thread or a ring (`io_submit`): reads and writes
    /// past the page cache, on epoll.
    pub file_direct: u64,
    /// File calls made by worker threads.
    pub file_worker: u64,
    /// Datagrams that the kernel dropped because a socket's receive buffer was full.
    pub dropped_datagrams: u64,
    /// Times that the memory limit paused a stream.
    pub memory_pauses: u64,
    /// Bytes that count against the memory limit now.
    pub memory_held: u64,
    /// The memory limit, which runtimes can share; 0 means no limit.
    pub memory_limit: u64,
    /// Streams that the memory limit has paused.
    pub streams_paused: u64,
    /// Wakes and spawns from other threads.
    pub remote_wakes: u64,
    /// System calls that other threads made to wake the loop, because it slept.
    pub wakeups: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_listed_with_name_help_and_value() {
        let counters = Counters { enters: 7, wakeups: 9, ..Counters::default() };
        let listed: Vec<Counter> = counters.iter().collect();
        assert_eq!(listed.len() * size_of::<u64>(), size_of::<Counters>());
        assert_eq!((listed[0].name, listed[0].value), ("enters", 7));
        let full = listed.iter().find(|counter| counter.name == "queue_full").unwrap();
        assert_eq!(
            full.help,
            "Operations that found the submission queue full, so that entries were submitted \
             before the end of the turn."
        );
        let last = listed.last().unwrap();
        assert_eq!((last.name, last.value), ("wakeups", 9));
        assert_eq!(listed.iter().filter(|counter| counter.is_gauge()).count(), 3);
    }
}
