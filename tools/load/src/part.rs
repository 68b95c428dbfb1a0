//! The part that one machine has in a run of several machines.

use crate::invalid::{InvalidValue, counted, invalid};
use std::fmt;
use std::str::FromStr;

/// The maximum number of parts of a run.
pub const MAX_PARTS: usize = 1000;

/// One of several equal parts of a run, each on a machine of its own.
///
/// Every part has the same plan. The clients of all parts are numbered together, and each part has
/// every `count`-th of them, so the parts add up to exactly the planned clients, rate and requests.
/// In text, parts count from 1.
///
/// ```
/// use annulus_load::Part;
///
/// let part: Part = "2/4".parse().unwrap();
/// assert_eq!((part.index(), part.count()), (1, 4));
/// assert!("5/4".parse::<Part>().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    index: usize,
    count: usize,
}

impl Part {
    /// The only part of a run on one machine.
    pub const WHOLE: Part = Part { index: 0, count: 1 };

    /// Creates part `index`, counted from 0, of `count` parts.
    ///
    /// # Errors
    /// Fails if there is no such part, or if there are more than [`MAX_PARTS`].
    pub fn new(index: usize, count: usize) -> Result<Part, InvalidValue> {
        if !(1..=MAX_PARTS).contains(&count) {
            return Err(invalid(format!(
                "a run cannot have {count} parts: use 1 to {MAX_PARTS} parts"
            )));
        }
        if index >= count {
            return Err(invalid(format!(
                "part {} of {count} does not exist: parts are numbered from 1 to {count}",
                index as u128 + 1
            )));
        }
        Ok(Part { index, count })
    }

    /// Returns the number of this part, counted from 0.
    pub fn index(self) -> usize {
        self.index
    }

    /// Returns the number of parts of the run.
    pub fn count(self) -> usize {
        self.count
    }

    /// Formats the part for messages: `part 2 of 4 (host)`, or `part 2 of 4` if the name of its host
    /// is empty.
    pub fn name_on(self, host: &str) -> String {
        let Part { index, count } = self;
        let host = if host.is_empty() { String::new() } else { format!(" ({host})") };
        format!("part {} of {count}{host}", index + 1)
    }

    /// Returns how many of the clients of the run belong to this part.
    pub(crate) fn clients(self, all: usize) -> usize {
        (self.index..all).step_by(self.count).len()
    }

    /// Returns the number of a thread of this part among the threads of all parts, and the number
    /// of all threads. Each part has `threads` threads.
    pub(crate) fn thread(self, index: usize, threads: usize) -> [usize; 2] {
        [self.index + self.count * index, self.count * threads]
    }

    /// Returns how many of the requests of the run this part sends with this number of threads.
    pub(crate) fn requests(self, requests: u64, threads: usize, clients: usize) -> u64 {
        let of_thread = |index| share(requests, self.thread(index, threads), clients);
        (0..threads).map(of_thread).sum()
    }

    /// Rejects a plan that cannot be divided among the parts.
    pub(crate) fn check(self, clients: usize, requests: Option<u64>) -> Result<(), InvalidValue> {
        let Part { count, .. } = self;
        if clients < count {
            return Err(invalid(format!(
                "{} cannot be divided among {count} parts: use at least {count} connections, or \
                 fewer parts",
                counted(clients, "connection")
            )));
        }
        match requests {
            Some(requests) if count > 1 && requests < clients as u64 => Err(invalid(format!(
                "{} cannot be divided among {count} parts with {clients} connections: send at \
                 least one request per connection, or use fewer connections",
                counted(requests, "request")
            ))),
            _ => Ok(()),
        }
    }
}

impl Default for Part {
    fn default() -> Part {
        Part::WHOLE
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index + 1, self.count)
    }
}

impl FromStr for Part {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Part, InvalidValue> {
        let numbers = text.split_once('/').and_then(|(number, count)| {
            Some((number.parse::<usize>().ok()?.checked_sub(1)?, count.parse().ok()?))
        });
        let (index, count) = numbers.ok_or_else(|| {
            invalid(format!(
                "'{text}' is not a part: write its number and the number of parts, such as 2/4"
            ))
        })?;
        Part::new(index, count)
    }
}

/// Returns how many of the requests thread `index` out of `threads` sends: in proportion to its
/// clients. The shares of all threads add up to `requests`.
pub(crate) fn share(requests: u64, [index, threads]: [usize; 2], clients: usize) -> u64 {
    let of = |thread| (thread..clients).step_by(threads).len() as u128;
    let [before, clients] = [(0..index).map(of).sum::<u128>(), clients as u128];
    let until = |clients_so_far| u128::from(requests) * clients_so_far / clients;
    (until(before + of(index)) - until(before)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(text: &str) -> Part {
        text.parse().unwrap()
    }

    #[test]
    fn parts_display_as_they_are_parsed() {
        for text in ["1/1", "1/4", "4/4", "1000/1000"] {
            assert_eq!(part(text).to_string(), text);
        }
        assert_eq!(Part::default(), part("1/1"));
    }

    #[test]
    fn invalid_part_is_named_with_its_limits() {
        for (text, expected) in [
            ("", "'' is not a part"),
            ("2", "such as 2/4"),
            ("0/4", "'0/4' is not a part"),
            ("a/4", "'a/4' is not a part"),
            ("-1/4", "'-1/4' is not a part"),
            ("1/2/3", "'1/2/3' is not a part"),
            ("5/4", "part 5 of 4 does not exist: parts are numbered from 1 to 4"),
            ("1/0", "a run cannot have 0 parts: use 1 to 1000"),
            ("1/1001", "a run cannot have 1001 parts"),
            ("18446744073709551615/4", "part 18446744073709551615 of 4"),
        ] {
            let error = text.parse::<Part>().unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn threads_share_the_requests_in_proportion_to_their_clients() {
        let shares = |requests, threads: usize, clients| {
            (0..threads).map(|index| share(requests, [index, threads], clients)).collect::<Vec<_>>()
        };
        assert_eq!(shares(100, 2, 4), [50, 50]);
        assert_eq!(shares(100, 2, 3), [66, 34]);
        assert_eq!(shares(1, 3, 3), [0, 0, 1]);
        for (requests, threads, clients) in [(7, 3, 5), (1_000_003, 7, 50), (u64::MAX, 4, 9)] {
            let all: u128 = shares(requests, threads, clients).into_iter().map(u128::from).sum();
            assert_eq!(all, u128::from(requests));
        }
    }

    #[test]
    fn parts_add_up_to_all_clients_and_requests() {
        for (count, threads, clients, requests) in
            [(1, 1, 1, 1), (3, 2, 10, 10), (4, 3, 50, 1_000_003), (7, 1, 7, 7)]
        {
            let parts = || (0..count).map(|index| Part::new(index, count).unwrap());
            assert_eq!(parts().map(|part| part.clients(clients)).sum::<usize>(), clients);
            let each: Vec<_> =
                parts().map(|part| part.requests(requests, threads, clients)).collect();
            assert_eq!(each.iter().sum::<u64>(), requests);
            assert!(each.iter().all(|share| *share > 0), "a part has no request: {each:?}");
        }
    }

    #[test]
    fn each_client_belongs_to_one_thread_of_one_part() {
        let (count, threads, clients) = (3, 2, 10);
        let mut owners = vec![0; clients];
        for part in (0..count).map(|index| Part::new(index, count).unwrap()) {
            for thread in 0..threads {
                let [first, step] = part.thread(thread, threads);
                (first..clients).step_by(step).for_each(|client| owners[client] += 1);
            }
        }
        assert_eq!(owners, [1; 10]);
    }

    #[test]
    fn plan_that_cannot_be_divided_is_rejected() {
        let check = |clients, requests| {
            part("1/4").check(clients, requests).map_err(|error| error.to_string())
        };
        assert_eq!(check(4, Some(4)), Ok(()));
        assert_eq!(check(4, None), Ok(()));
        assert_eq!(Part::WHOLE.check(50, Some(1)), Ok(()));
        assert!(check(3, None).unwrap_err().contains("use at least 4 connections"));
        assert!(check(8, Some(7)).unwrap_err().contains("7 requests cannot be divided"));
    }
}
