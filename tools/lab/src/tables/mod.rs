//! Published tables, as they stand in a file.

mod axis;

use serde::{Deserialize, Serialize};

pub use axis::{Axis, Figure, Question};

/// How the cells of a suite are measured.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// An echo server with connections that stay open.
    Echo,
    /// An echo server with a connection per message.
    Connect,
    /// A ring with NOPs.
    Nop,
    /// An echo server with datagrams.
    Udp,
    /// Files written and read.
    File,
}

/// The tables of a document.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Suite {
    /// The title of the suite.
    pub title: String,
    /// Where it was published.
    pub document: String,
    /// How its cells are measured.
    pub kind: Kind,
    /// The machine of the published figures.
    pub machine: Vec<String>,
    /// The commands of the published figures.
    pub commands: Vec<String>,
    /// The tables of the suite.
    #[serde(rename = "table")]
    pub tables: Vec<Table>,
}

/// One table of a document.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// The title of the table.
    pub title: String,
    /// The unit of its figures.
    pub unit: String,
    /// The title of the column with the names of the rows.
    pub corner: String,
    /// An explanation for the reader.
    pub caption: Option<String>,
    /// Parameters of every cell.
    #[serde(default)]
    pub each: Axis,
    /// The columns of the table.
    pub columns: Vec<Axis>,
    /// The rows of the table.
    pub rows: Vec<Axis>,
}

impl Suite {
    /// Checks that every cell has a question.
    pub(crate) fn checked(self) -> Result<Suite, String> {
        self.tables.iter().try_for_each(|table| table.check(self.kind))?;
        Ok(self)
    }

    /// The questions of all cells.
    pub fn questions(&self) -> impl Iterator<Item = Question> {
        self.tables.iter().flat_map(|table| {
            let rows = 0..table.rows.len();
            rows.flat_map(move |row| {
                (0..table.columns.len()).map(move |column| table.ask(row, column))
            })
        })
    }
}

impl Table {
    /// The question of a cell.
    pub fn ask(&self, row: usize, column: usize) -> Question {
        self.gather(row, column).expect("checked when it was read")
    }

    /// The published figure of a cell.
    pub fn published(&self, row: usize, column: usize) -> Option<f64> {
        self.rows[row].published.get(column).copied()
    }

    /// Whether the columns name the servers.
    pub fn has_servers_in_columns(&self) -> bool {
        self.columns.iter().any(Axis::names_servers)
    }

    fn gather(&self, row: usize, column: usize) -> Result<Question, &'static str> {
        self.each.with(&self.rows[row]).with(&self.columns[column]).question()
    }

    fn check(&self, kind: Kind) -> Result<(), String> {
        for (row, axis) in self.rows.iter().enumerate() {
            let place = |column: usize| format!("{} × {}", axis.name, self.columns[column].name);
            if axis.published.len() > self.columns.len() {
                return Err(format!(
                    "'{}': row {} has more figures than columns",
                    self.title, axis.name
                ));
            }
            for column in 0..self.columns.len() {
                let question = self.gather(row, column).and_then(|question| kind.check(&question));
                question.map_err(|why| format!("'{}': {} {why}", self.title, place(column)))?;
            }
        }
        Ok(())
    }
}

impl Kind {
    /// Checks that a question has all parameters that this kind needs.
    fn check(self, question: &Question) -> Result<(), &'static str> {
        let Axis { clients, bytes, entries, cycles, .. } = &question.of;
        let message = clients.is_some() && bytes.is_some();
        let (complete, missing) = match self {
            Kind::Echo | Kind::Udp => (message, "names no clients or no bytes"),
            Kind::Connect => {
                (message || question.figure.is_of_memory(), "names no clients or no bytes")
            }
            Kind::Nop => (entries.is_some(), "names no entries"),
            Kind::File => (message && cycles.is_some(), "names no clients, bytes or cycles"),
        };
        if complete { Ok(()) } else { Err(missing) }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::describe::Described;

    fn parse(text: &str) -> anyhow::Result<Suite> {
        match Described::parse("small", text)? {
            Described::Suite(suite) => Ok(suite),
            Described::Comparison(_) => anyhow::bail!("no tables"),
        }
    }

    fn suites() -> impl Iterator<Item = (&'static str, Suite)> {
        Described::names().filter_map(|name| match Described::find(name)? {
            Described::Suite(suite) => Some((name, suite)),
            Described::Comparison(_) => None,
        })
    }

    const SMALL: &str = r#"
        title = "t"
        document = "d"
        kind = "echo"
        machine = []
        commands = []
        [[table]]
        title = "a table"
        unit = "requests/s"
        corner = "clients"
        each = { servers = ["uring"], figure = "rate", bytes = 128 }
        columns = [{ name = "1", clients = 1 }, { name = "50", clients = 50, figure = "percent" }]
        rows = [{ name = "128", published = [5] }, { name = "big", bytes = 1000, servers = ["go"] }]
    "#;

    /// A suite of four cells.
    pub(crate) fn small() -> Suite {
        parse(SMALL).expect("a suite")
    }

    #[test]
    fn a_question_combines_table_row_and_column() {
        let suite = small();
        let table = &suite.tables[0];
        let first = table.ask(0, 0);
        assert_eq!((first.servers, first.figure), (vec!["uring".to_owned()], Figure::Rate));
        let last = table.ask(1, 1);
        assert_eq!((last.servers, last.figure), (vec!["go".to_owned()], Figure::Percent));
        assert_eq!((last.of.clients, last.of.bytes), (Some(50), Some(1000)));
        assert_eq!((table.published(0, 0), table.published(0, 1)), (Some(5.0), None));
        assert_eq!(suite.questions().count(), 4);
    }

    #[test]
    fn incomplete_and_unknown_entries_are_refused_by_name() {
        for (from, to, part) in [
            ("bytes = 128", "cycles = 1", "'a table': 128 × 1 names no clients or no bytes"),
            ("figure = \"rate\", ", "", "128 × 1 names no figure"),
            ("servers = [\"uring\"], ", "", "names no servers"),
            ("published = [5]", "published = [1, 2, 3]", "row 128 has more figures than columns"),
            ("corner =", "edge =", "unknown field `edge`"),
            ("kind = \"echo\"", "kind = \"dance\"", "unknown variant `dance`"),
            ("clients = 1 }", "client = 1 }", "unknown field `client`"),
            ("\"big\", bytes = 1000", "\"b\\nig\", published = [1, 2, 3]", "row b ig has more"),
        ] {
            let error = parse(&SMALL.replace(from, to)).expect_err(from).to_string();
            assert!(error.contains(part) && error.lines().count() == 1, "{error}");
        }
    }

    /// The eight suites of this repository, each with its published figures.
    #[test]
    fn every_suite_here_is_complete() {
        let published = |suite: &Suite| {
            let rows = suite.tables.iter().flat_map(|table| &table.rows);
            rows.map(|row| row.published.len()).sum::<usize>()
        };
        let counts: Vec<_> = suites().map(|(name, suite)| (name, published(&suite))).collect();
        assert_eq!(
            counts,
            [
                ("bench-echo", 24 + 6 + 6 + 11),
                ("fibers", 48),
                ("file", 2 * 2 * 2),
                ("go-uring", 24),
                ("nop", 21),
                ("op-modes", 3 * 8 * 5),
                ("tcp", 24),
                ("udp", 24 + 24 + 8 + 2),
            ]
        );
    }

    /// Figures that a document computed from others must agree with them here, too. (Its "mid" is not the median in
    /// three rows, and one rate is off by 1.0.)
    #[test]
    fn op_modes_have_one_of_three_as_mid_and_its_rate() {
        let (_, suite) = suites().find(|(name, _)| *name == "op-modes").expect("it is there");
        for table in suite.tables {
            let first = table.rows[0].published[3];
            for row in table.rows.iter().filter(|row| !row.published.is_empty()) {
                let [a, b, c, middle, rate] = row.published[..] else { panic!("{}", row.name) };
                assert!([a, b, c].contains(&middle), "{}", row.name);
                assert!((rate - 100.0 * middle / first).abs() < 1.1, "{}: {rate}", row.name);
            }
        }
    }
}
