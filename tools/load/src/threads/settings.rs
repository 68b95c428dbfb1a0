//! The runtimes of the threads.

use annulus::{Builder, DriverChoice, Runtime};
use std::time::Duration;

/// Clients from which on memory matters more than the fewest receives of large replies.
const MANY: usize = 1000;
/// Bytes of all buffers, for many clients, unless these are fewer than [`FEWEST`].
const BUFFERS: usize = 1 << 20;
/// The fewest buffers, so that large replies still come in pieces of the pool.
const FEWEST: usize = 16;
/// The least and the largest buffer. A multiple of the page is asked for.
const BUFFER: [usize; 2] = [4 << 10, 256 << 10];

/// The settings of the runtime of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    driver: DriverChoice,
    /// Bytes of a receive buffer, and how many there are, unless they are the runtime's own.
    buffers: Option<(u32, u32)>,
}

impl Settings {
    /// For so many clients of a thread, whose replies have about so many bytes. A reply takes a buffer until its client has seen it: thousands
    /// that come at once would take a large one each, or memory of their own.
    pub(crate) fn new(driver: DriverChoice, clients: usize, reply: usize) -> Settings {
        let [least, most] = BUFFER;
        let size = reply.clamp(least, most).next_power_of_two();
        let count = (BUFFERS / size).max(FEWEST);
        let buffers = (clients > MANY).then_some((size as u32, count as u32));
        Settings { driver, buffers }
    }

    pub(super) fn builder(self) -> Builder {
        // No data is left to send when the clients have ended.
        let builder = Runtime::builder().driver(self.driver).shutdown_timeout(Duration::ZERO);
        match self.buffers {
            Some((size, count)) => builder.recv_buffers(size, count),
            None => builder,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_clients_have_small_buffers() {
        let buffers = |clients, reply| Settings::new(DriverChoice::Auto, clients, reply).buffers;
        assert_eq!(buffers(MANY, 128), None);
        assert_eq!(buffers(15_000, 128), Some((4096, 256)));
        assert_eq!(buffers(15_000, 5000), Some((8192, 128)));
        assert_eq!(buffers(15_000, 64 << 20), Some((256 << 10, 16)));
        for reply in [1, 5000, 64 << 20] {
            let settings = Settings::new(DriverChoice::Auto, 15_000, reply);
            assert!(settings.builder().build().is_ok(), "{settings:?}");
        }
    }
}
