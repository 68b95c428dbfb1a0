//! Published tables, as written in a file.

mod axis;

use serde::{Deserialize, Serialize};

pub use axis::{Axis, Figure, Question};

/// How the cells of a suite are measured.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Echo servers with connections that stay open.
    Echo,
    /// Echo servers with a connection per message.
    Connect,
    /// NOPs on a ring.
    Nop,
    /// Echo servers with datagrams.
    Udp,
    /// Writing and reading files.
    File,
}

/// The tables of a document.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Suite {
    /// The title of the suite.
    pub title: String,
    /// Where the document was published.
    pub document: String,
    /// How the cells are measured.
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
    /// The unit of the figures.
    pub unit: String,
    /// The title of the column of row names.
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
    /// Checks that there is a cell, and that every cell has a valid question.
    pub(crate) fn checked(self) -> Result<Suite, String> {
        if self.tables.is_empty() {
            return Err("kind is for published tables, but there is no table: add [[table]]".into());
        }
        self.tables.iter().try_for_each(|table| table.check(self.kind))?;
        Ok(self)
    }

    /// Returns the questions of all cells.
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
    /// Returns the question of a cell.
    pub fn ask(&self, row: usize, column: usize) -> Question {
        self.gather(row, column).expect("the table is incomplete")
    }

    /// Returns the published figure of a cell, if there is one.
    pub fn published(&self, row: usize, column: usize) -> Option<f64> {
        self.rows[row].published.get(column).copied()
    }

    /// Returns true if the columns name the servers.
    pub fn has_servers_in_columns(&self) -> bool {
        self.columns.iter().any(Axis::names_servers)
    }

    fn gather(&self, row: usize, column: usize) -> Result<Question, &'static str> {
        self.each.with(&self.rows[row]).with(&self.columns[column]).question()
    }

    fn check(&self, kind: Kind) -> Result<(), String> {
        for (name, axis) in [("columns", &self.columns), ("rows", &self.rows)] {
            if axis.is_empty() {
                return Err(format!("'{}' has no {name}: add {name} = [{{ … }}]", self.title));
            }
        }
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
    /// Checks that a question has all parameters that this kind requires.
    fn check(self, question: &Question) -> Result<(), &'static str> {
        let Axis { connections, bytes, entries, cycles, .. } = &question.of;
        let message = connections.is_some() && bytes.is_some();
        let (complete, missing) = match self {
            Kind::Echo | Kind::Udp => (message, "needs connections and bytes"),
            Kind::Connect => {
                (message || question.figure.is_of_memory(), "needs connections and bytes")
            }
            Kind::Nop => (entries.is_some(), "needs entries"),
            Kind::File => (message && cycles.is_some(), "needs workers, bytes and cycles"),
        };
        if complete { Ok(()) } else { Err(missing) }
    }
}
