//! Interval logs of HdrHistogram, version 1.3 with histograms in V2, compressed.

use super::{Interval, Latencies};
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{
    IntervalLogWriterBuilder, IntervalLogWriterError, Tag,
};
use std::fmt;
use std::io::{self, Write};
use std::time::{Duration, SystemTime};

/// The first line of a log, which some readers ask for.
const VERSION: &str = "[Histogram log format version 1.3]";

/// Writes an interval log of HdrHistogram: two histograms for each interval, in ns. Response times have no tag, which is
/// what the usual tools show by default; service times have the tag `service`, if they were recorded.
///
/// Times in the log count from its base time, which is when measuring began.
///
/// ```
/// use annulus_load::recording::{HdrLog, Interval, Latencies};
///
/// let mut log = HdrLog::new(Vec::new(), 1_700_000_000.25, &["a run".into()]).unwrap();
/// let mut second = Interval::new(0.0, 1.0);
/// second.response = Latencies::from_iter([1_000_000]);
/// log.write(&second).unwrap();
/// let text = String::from_utf8(log.into_inner()).unwrap();
/// assert!(text.contains("#[BaseTime: 1700000000.250 (seconds since epoch)]\n0.000,1.000,"), "{text}");
/// ```
pub struct HdrLog<W> {
    writer: W,
    serializer: V2DeflateSerializer,
}

impl<W: Write> HdrLog<W> {
    /// Writes the head of a log: when measuring began, in seconds since the Unix epoch, and comments.
    ///
    /// # Errors
    /// If the writer fails.
    pub fn new(mut writer: W, started: f64, comments: &[String]) -> io::Result<HdrLog<W>> {
        let mut serializer = V2DeflateSerializer::new();
        let started = SystemTime::UNIX_EPOCH + seconds(started);
        let mut head = IntervalLogWriterBuilder::new();
        head.add_comment(VERSION).with_start_time(started).with_base_time(started);
        for comment in comments {
            head.add_comment(comment);
        }
        head.begin_log_with(&mut writer, &mut serializer)?;
        Ok(HdrLog { writer, serializer })
    }

    /// Writes the histograms of an interval, in one piece.
    ///
    /// # Errors
    /// If the writer fails.
    pub fn write(&mut self, interval: &Interval) -> io::Result<()> {
        let mut lines = Vec::new();
        self.add_line(&mut lines, interval, &interval.response, None)?;
        if !interval.service.is_empty() {
            self.add_line(&mut lines, interval, &interval.service, Tag::new("service"))?;
        }
        self.writer.write_all(&lines)
    }

    /// The writer.
    pub fn get_mut(&mut self) -> &mut W {
        &mut self.writer
    }

    /// The writer.
    pub fn into_inner(self) -> W {
        self.writer
    }

    fn add_line(
        &mut self,
        lines: &mut Vec<u8>,
        interval: &Interval,
        latencies: &Latencies,
        tag: Option<Tag<'_>>,
    ) -> io::Result<()> {
        let mut log =
            IntervalLogWriterBuilder::new().begin_log_with(lines, &mut self.serializer)?;
        let histogram = latencies.histogram();
        log.write_histogram(&histogram, seconds(interval.start), seconds(interval.length), tag)
            .map_err(|error| match error {
                IntervalLogWriterError::IoError(error) => error,
                IntervalLogWriterError::SerializeError(error) => io::Error::other(error),
            })
    }
}

impl<W: fmt::Debug> fmt::Debug for HdrLog<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HdrLog").field("writer", &self.writer).finish_non_exhaustive()
    }
}

/// A time that is not negative; what no clock can show is zero.
fn seconds(time: f64) -> Duration {
    Duration::try_from_secs_f64(time).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hdrhistogram::Histogram;
    use hdrhistogram::serialization::Deserializer;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    #[test]
    fn the_log_has_what_was_recorded() {
        let latencies = |n: u64| Latencies::from_iter((1..=n * 100).map(|i| i * 12_345));
        let interval = |start: f64, n| Interval {
            response: latencies(n),
            service: if n == 2 { latencies(1) } else { Latencies::default() },
            ..Interval::new(start, 1.0)
        };
        let intervals = [interval(0.0, 1), interval(1.0, 2), interval(2.0, 0)];
        let mut log = HdrLog::new(Vec::new(), 1.7e9, &["annulus load".into()]).unwrap();
        intervals.iter().for_each(|interval| log.write(interval).unwrap());
        let text = log.into_inner();
        let entries: Vec<_> = IntervalLogIterator::new(&text).map(Result::unwrap).collect();
        let [LogEntry::StartTime(start), LogEntry::BaseTime(base), lines @ ..] = &entries[..]
        else {
            panic!("no head: {entries:?}");
        };
        assert_eq!((start.as_secs(), base.as_secs()), (1_700_000_000, 1_700_000_000));
        let read: Vec<(u64, Option<&str>, Latencies)> = lines.iter().map(decode).collect();
        let wanted = [
            (0, None, latencies(1)),
            (1, None, latencies(2)),
            (1, Some("service"), latencies(1)),
            (2, None, Latencies::default()),
        ];
        assert_eq!(read, wanted);
    }

    fn decode<'a>(entry: &LogEntry<'a>) -> (u64, Option<&'a str>, Latencies) {
        let LogEntry::Interval(line) = entry else { panic!("not a line: {entry:?}") };
        let bytes = base64(line.encoded_histogram());
        let histogram: Histogram<u64> = Deserializer::new().deserialize(&mut &bytes[..]).unwrap();
        let tag = line.tag().map(|tag| tag.as_str());
        (line.start_timestamp().as_secs(), tag, Latencies::from_histogram(&histogram))
    }

    /// Decodes base64 with padding.
    fn base64(text: &str) -> Vec<u8> {
        let digit = |c: u8| match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => panic!("{c} is no digit of base64"),
        };
        let digits: Vec<u8> = text.trim_end_matches('=').bytes().map(digit).collect();
        let group = |four: &[u8]| {
            let bits = four.iter().fold(0_u32, |bits, &digit| bits << 6 | u32::from(digit));
            let bits = bits << (6 * (4 - four.len()));
            bits.to_be_bytes()[1..four.len()].to_vec()
        };
        digits.chunks(4).flat_map(group).collect()
    }
}
