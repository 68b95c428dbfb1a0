//! A row for each interval, as comma-separated values.

use super::{ClassInterval, Interval, Percentiles, Summary};
use std::io::{self, Write};

/// The columns of a [`CsvLog`], in order, with what they have.
///
/// Latencies are in µs. A percentile is empty if the interval has too few latencies for it ([`Percentiles`]).
pub const COLUMNS: [(&str, &str); 28] = [
    ("start", "the start of the interval, in seconds since measuring began"),
    ("length", "its length in seconds"),
    ("sent", "requests sent"),
    ("answered", "replies that were complete and as expected"),
    ("refused", "of the replies, those that say that the server has failed or refuses"),
    ("failed", "requests that failed"),
    ("reconnects", "connections made in place of others"),
    ("late", "requests sent more than 1 ms after they were due"),
    ("bytes_sent", "bytes sent"),
    ("bytes_received", "bytes received"),
    ("requests_per_second", "replies divided by the length"),
    ("response_min", "the shortest response time: from the due time to the end of the reply"),
    ("response_mean", "the mean of response times"),
    ("response_p50", "the median of response times"),
    ("response_p90", "their 90th percentile"),
    ("response_p99", "their 99th percentile"),
    ("response_p99.9", "their 99.9th percentile"),
    ("response_max", "the longest response time"),
    (
        "service_samples",
        "how many service times there are: from the write of a request to the end of its reply",
    ),
    ("service_min", "the shortest service time"),
    ("service_mean", "the mean of service times"),
    ("service_p50", "the median of service times"),
    ("service_p90", "their 90th percentile"),
    ("service_p99", "their 99th percentile"),
    ("service_p99.9", "their 99.9th percentile"),
    ("service_max", "the longest service time"),
    ("outcomes", "replies by what they say, such as 2xx=1200;5xx=3"),
    ("lost", "datagrams that were not echoed in time; empty in runs of something else"),
];

/// Writes a row for each interval, below a row with the names of the columns ([`COLUMNS`]).
///
/// ```
/// use annulus_load::recording::{CsvLog, Interval};
///
/// let mut log = CsvLog::new(Vec::new()).unwrap();
/// log.write(&Interval::new(0.0, 1.0)).unwrap();
/// let text = String::from_utf8(log.into_inner()).unwrap();
/// assert!(text.starts_with("start,length,sent,") && text.lines().count() == 2);
/// ```
#[derive(Debug)]
pub struct CsvLog<W> {
    writer: W,
    /// Classes of requests, each with columns of its own.
    classes: usize,
}

/// The columns of each class of requests, behind its name; they stand behind all others.
const CLASS_COLUMNS: [&str; 6] =
    ["sent", "answered", "refused", "failed", "response_p50", "response_p99"];

impl<W: Write> CsvLog<W> {
    /// Writes the names of the columns.
    ///
    /// # Errors
    /// If the writer fails.
    pub fn new(writer: W) -> io::Result<CsvLog<W>> {
        CsvLog::with_classes(writer, &[])
    }

    /// The same, with columns for each of these classes of requests behind the others, such as `GET /a: response_p99`:
    /// sent, answered, refused, failed, and the median and the 99th percentile of response times.
    ///
    /// # Errors
    /// If the writer fails.
    pub fn with_classes(mut writer: W, classes: &[String]) -> io::Result<CsvLog<W>> {
        let of = |class: &String| CLASS_COLUMNS.map(|name| quoted(format!("{class}: {name}")));
        let names = COLUMNS.iter().map(|(name, _)| (*name).to_owned());
        let names: Vec<_> = names.chain(classes.iter().flat_map(of)).collect();
        writer.write_all((names.join(",") + "\n").as_bytes())?;
        Ok(CsvLog { writer, classes: classes.len() })
    }

    /// Writes a row, in one piece.
    ///
    /// # Errors
    /// If the writer fails.
    pub fn write(&mut self, interval: &Interval) -> io::Result<()> {
        let empty = ClassInterval::default();
        let classes = (0..self.classes).map(|place| interval.classes.get(place).unwrap_or(&empty));
        let cells: Vec<_> = cells(interval).into_iter().chain(classes.flat_map(of_class)).collect();
        let mut row = cells.join(",");
        row.push('\n');
        self.writer.write_all(row.as_bytes())
    }

    /// The writer.
    pub fn get_mut(&mut self) -> &mut W {
        &mut self.writer
    }

    /// The writer.
    pub fn into_inner(self) -> W {
        self.writer
    }
}

fn cells(interval: &Interval) -> Vec<String> {
    let summary = Summary::new(interval);
    let mut cells = vec![format!("{:.3}", interval.start), format!("{:.3}", interval.length)];
    let counts = [
        interval.sent,
        interval.answered,
        interval.refused,
        interval.failed,
        interval.reconnects,
        interval.late,
        interval.bytes_sent,
        interval.bytes_received,
    ];
    cells.extend(counts.map(|count| count.to_string()));
    cells.push(format!("{:.3}", summary.requests_per_second));
    cells.extend(latencies(&summary.latency_us));
    cells.push(summary.service_us.samples.to_string());
    cells.extend(latencies(&summary.service_us));
    let outcomes = interval.outcomes.iter().map(|(name, count)| format!("{name}={count}"));
    cells.push(quoted(outcomes.collect::<Vec<_>>().join(";")));
    cells.push(interval.datagrams.map_or(String::new(), |counts| counts.lost.to_string()));
    cells
}

fn of_class(class: &ClassInterval) -> [String; CLASS_COLUMNS.len()] {
    let Percentiles { p50, p99, .. } = Percentiles::new(&class.response);
    let [sent, answered, refused, failed] =
        [class.sent, class.answered, class.refused, class.failed].map(|count| count.to_string());
    let [p50, p99] = [p50, p99].map(|value| value.map_or(String::new(), |us| format!("{us:.3}")));
    [sent, answered, refused, failed, p50, p99]
}

/// Minimum, mean, p50, p90, p99, p99.9 and maximum; empty without samples.
fn latencies(figures: &Percentiles) -> [String; 7] {
    let Percentiles { min, mean, p50, p90, p99, p99_9, max, .. } = *figures;
    let has_some = figures.samples > 0;
    let always = |value| has_some.then_some(value);
    [always(min), always(mean), p50, p90, p99, p99_9, always(max)]
        .map(|value| value.map_or(String::new(), |value| format!("{value:.3}")))
}

/// A cell that may have separators in it.
fn quoted(cell: String) -> String {
    match cell.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", cell.replace('"', "\"\"")),
        false => cell,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::{DatagramCounts, Latencies};

    #[test]
    fn classes_have_columns_behind_the_others() {
        let names = ["GET /a,b".to_owned(), "GET /c".to_owned()];
        let mut log = CsvLog::with_classes(Vec::new(), &names).unwrap();
        let class = ClassInterval {
            sent: 32,
            answered: 30,
            refused: 1,
            failed: 2,
            response: [(1000, 30)].into_iter().collect(),
            ..ClassInterval::default()
        };
        let classes = vec![ClassInterval::default(), class];
        log.write(&Interval { classes, ..Interval::new(0.0, 1.0) }).unwrap();
        log.write(&Interval::new(1.0, 1.0)).unwrap();
        let text = String::from_utf8(log.into_inner()).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[0].contains(",outcomes,lost,\"GET /a,b: sent\","), "{text}");
        assert!(lines[0].ends_with(",GET /c: response_p50,GET /c: response_p99"), "{text}");
        assert!(lines[1].ends_with(",0,0,0,0,,,32,30,1,2,1.000,"), "{text}");
        assert!(lines[2].ends_with(",0,0,0,0,,,0,0,0,0,,"), "{text}");
    }

    #[test]
    fn every_column_has_a_cell() {
        let interval = Interval {
            sent: 30,
            answered: 20,
            response: [(1000, 20)].into_iter().collect(),
            service: Latencies::from_iter([500]),
            outcomes: [("2xx".to_owned(), 19), ("a,\"b\"".to_owned(), 1)].into(),
            datagrams: Some(DatagramCounts { lost: 3, ..DatagramCounts::default() }),
            ..Interval::new(2.0, 0.5)
        };
        let cells = cells(&interval);
        assert_eq!(cells.len(), COLUMNS.len());
        let cell = |name| {
            let place = COLUMNS.iter().position(|(column, _)| *column == name).unwrap();
            cells[place].as_str()
        };
        assert_eq!((cell("start"), cell("length"), cell("sent")), ("2.000", "0.500", "30"));
        assert_eq!((cell("requests_per_second"), cell("response_p50")), ("40.000", "1.000"));
        assert_eq!((cell("response_p90"), cell("response_max")), ("", "1.000"), "20 are too few");
        assert_eq!(
            (cell("service_samples"), cell("service_min"), cell("service_p50")),
            ("1", "0.500", "")
        );
        assert_eq!(cell("outcomes"), "\"2xx=19;a,\"\"b\"\"=1\"");
        assert_eq!(cell("lost"), "3");
    }
}
