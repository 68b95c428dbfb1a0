//! Bulk transfers of datagrams from one sender to one receiver.
//!
//! A contender runs both ends, each on a thread and a core of its own. Its job is `BYTES WINDOW SECONDS`: after a
//! warm-up it sends numbered datagrams of this length for this time, with at most a window of them unacknowledged. It
//! answers `operations` (datagrams received), `lost`, `bytes`, `ns`, `sender_cpu_ns` and `receiver_cpu_ns`.

mod work;

use std::time::Duration;

use serde_json::json;

use crate::bench::{
    Better, Cell, Column, Fold, Format, Formula, LEAST_RATE, Layout, Metric, Role, megabytes, rate,
};
use crate::cores::Cores;
use crate::jobs::Known;
use crate::programs::Definition;

pub use work::answer_all;

/// The bench. Each end of a contender pins itself: the receiver to the core of the server, the sender to that of the load.
pub static BENCH: Definition = Definition {
    name: "bulk",
    contenders: &[
        Known::own("uring"),
        Known::own("epoll"),
        Known::own("uring-single"),
        Known::own("epoll-single"),
        Known::peer("c", "bulk-c", None),
        Known::peer("c-segments", "bulk-c", Some("segments")),
        Known::peer("tokio", "bulk-tokio", None),
    ],
    usual: &["uring", "epoll", "uring-single", "c", "c-segments", "tokio"],
    usual_slice: Duration::from_millis(200),
    // The best contender without segmentation.
    baseline: "c",
    metrics,
    required: &["operations", "ns", "sender_cpu_ns", "receiver_cpu_ns"],
    layout: Layout::Cells,
    legend: "; send and recv µs: CPU time for each datagram received",
    on_two_cores: true,
    run: |known, cores| (None, known.arguments(own(known.name, cores), peer(cores))),
    placement: |Cores { load: sender, server: receiver }| {
        let text = format!("senders on core {sender}, receivers on core {receiver}");
        (text, json!({ "sender_core": sender, "receiver_core": receiver }))
    },
};

/// Bytes of a window unless one is given: enough that neither end waits for the other, and less than a socket's buffer
/// holds if the system allows a few MB (`net.core.rmem_max`).
const IN_FLIGHT: u64 = 1 << 20;
/// The least and the most datagrams of such a window.
const WINDOWS: (u64, u64) = (8, 512);

fn metrics() -> Vec<Metric> {
    let lost = Metric::plain("lost", "lost", Formula::number("lost"));
    vec![
        Metric {
            title: "datagrams/s".into(),
            noun: "datagrams/s".into(),
            role: Role::Guard(LEAST_RATE),
            ..rate()
        },
        Metric { columns: Vec::new(), ..megabytes() },
        of_one_end("sender_cpu_us", "send µs", "sender_cpu_ns"),
        of_one_end("receiver_cpu_us", "recv µs", "receiver_cpu_ns"),
        Metric { format: Format::Whole, fold: Fold::Sum, ..lost },
        Metric {
            key: "per_cpu_second".into(),
            noun: "rate per CPU".into(),
            of: Formula::per("operations", &["sender_cpu_ns", "receiver_cpu_ns"], 1e9),
            better: Better::Higher,
            role: Role::Primary,
            columns: vec![Column::Ratio],
            ..rate()
        },
    ]
}

/// CPU time of one end for each datagram received, in µs.
fn of_one_end(key: &str, title: &str, ns: &str) -> Metric {
    let of = Formula::per(ns, &["operations"], 1e-3);
    Metric { format: Format::Decimals(3), ..Metric::plain(key, title, of) }
}

/// The arguments that make this program a contender.
fn own(name: &str, cores: Cores) -> Vec<std::ffi::OsString> {
    let [sender, receiver] = [cores.load, cores.server].map(|core| core.to_string());
    let pins = ["--sender-pin", &sender, "--receiver-pin", &receiver];
    ["bench", "bulk", "--contender", name].into_iter().chain(pins).map(Into::into).collect()
}

fn peer(cores: Cores) -> Vec<std::ffi::OsString> {
    [cores.load, cores.server].map(|core| core.to_string().into()).into()
}

/// The cell for datagrams of this length, with the given window or a suitable one.
pub fn cell(bytes: u64, window: Option<u64>) -> Cell {
    let usual = || (IN_FLIGHT / bytes.max(1)).clamp(WINDOWS.0, WINDOWS.1);
    let window = window.unwrap_or_else(usual);
    Cell::new([("bytes", bytes.into()), ("window", window.into())])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::Sample;

    #[test]
    fn both_ends_count() {
        let numbers = [("operations", 4e6), ("bytes", 4.8e9), ("ns", 1e9), ("sender_cpu_ns", 5e8)];
        let mut sample = Sample::from(numbers);
        sample.set("receiver_cpu_ns", 1.5e9);
        let values: Vec<_> = metrics().iter().map(|metric| metric.of.of(&sample)).collect();
        assert_eq!(values, [Some(4e6), Some(4.8e3), Some(0.125), Some(0.375), None, Some(2e6)]);
    }

    #[test]
    fn the_usual_window_suits_every_length() {
        let windows = [1, 1200, 9000, 65_507].map(|bytes| cell(bytes, None).number("window"));
        assert_eq!(windows, [512, 512, 116, 16].map(Some));
        let cell = cell(1200, Some(3));
        assert_eq!(
            (cell.job().as_str(), cell.to_string().as_str()),
            ("1200 3", "1200 bytes × window 3")
        );
    }

    #[test]
    fn both_ends_get_their_cores_as_arguments() {
        let cores = Cores { server: 3, load: 5 };
        let line = "bench bulk --contender uring-single --sender-pin 5 --receiver-pin 3";
        assert_eq!(own("uring-single", cores), line.split(' ').collect::<Vec<_>>());
        assert_eq!(BENCH.contenders[5].arguments(Vec::new(), peer(cores)), ["5", "3", "segments"]);
    }
}
