//! How the server runs connections: as tasks on a driver, or as threads.

use annulus::DriverChoice;
use std::fmt;
use std::str::FromStr;

/// The name of [`Mode::Threads`].
const THREADS: &str = "threads";

/// How connections are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// One task per connection, on runtimes with this driver.
    Tasks(DriverChoice),
    /// One blocking thread per connection.
    Threads,
}

impl Default for Mode {
    fn default() -> Mode {
        Mode::Tasks(DriverChoice::Auto)
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Mode, String> {
        match text {
            THREADS => Ok(Mode::Threads),
            _ => text.parse().map(Mode::Tasks).map_err(|error| format!("{error}, {THREADS}")),
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mode::Tasks(choice) => choice.fmt(f),
            Mode::Threads => f.write_str(THREADS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_parsed_and_printed_alike() {
        for (text, mode) in
            [("threads", Mode::Threads), ("uring", Mode::Tasks(DriverChoice::Uring))]
        {
            assert_eq!(text.parse(), Ok(mode));
            assert_eq!(mode.to_string(), text);
        }
        let error = "kqueue".parse::<Mode>().unwrap_err();
        for part in ["kqueue", "auto", "uring", "threads"] {
            assert!(error.contains(part), "{part} is not in: {error}");
        }
    }
}
