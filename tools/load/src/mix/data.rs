//! Values for the fields of requests, from a file.

use super::template::FIELD_NAMES;
use crate::invalid::{InvalidValue, counted, invalid};

/// Rows of values from a file of comma-separated values. Its first row has the names of the
/// columns, and a field such as `{user}` is replaced with the value in that column.
///
/// Each request uses the next row; after the last one, the first follows. Requests in order
/// ([`Mix::in_order`](crate::Mix::in_order)) use one row for the whole session.
///
/// ```
/// use annulus_load::DataRows;
///
/// let rows = DataRows::parse(b"user,password\nann,secret\n\"bob, jr\",x\n").unwrap();
/// assert_eq!(rows.columns(), ["user", "password"]);
/// assert_eq!(rows.len(), 2);
/// let error = DataRows::parse(b"user,password\nann\n").unwrap_err().to_string();
/// assert_eq!(error, "line 2: 1 value instead of 2, one for each column");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataRows {
    columns: Vec<String>,
    rows: Vec<Vec<Vec<u8>>>,
}

impl DataRows {
    /// Parses comma-separated values. Values with commas, quotes or line breaks are quoted.
    ///
    /// # Errors
    /// Fails if a line is invalid, or if there are no rows after the names of the columns.
    pub fn parse(bytes: &[u8]) -> Result<DataRows, InvalidValue> {
        let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(bytes);
        let not_text = |error: csv::Error| invalid(format!("line 1: {error}"));
        let columns: Vec<String> =
            reader.headers().map_err(not_text)?.iter().map(|name| name.trim().to_owned()).collect();
        for (place, name) in columns.iter().enumerate() {
            let is_plain = |c: char| c.is_alphanumeric() || "_-.".contains(c);
            let what = if name.is_empty() || !name.chars().all(is_plain) {
                "is not a name: use A–Z, a–z, 0–9, '_', '-' and '.'"
            } else if FIELD_NAMES.contains(&name.as_str()) {
                "has the name of a field: rename it"
            } else if columns[..place].contains(name) {
                "occurs twice: rename one of them"
            } else {
                continue;
            };
            return Err(invalid(format!("line 1: the column '{name}' {what}")));
        }
        let mut rows = Vec::new();
        for record in reader.byte_records() {
            let record = record.map_err(|error| invalid(error.to_string()))?;
            if record.len() != columns.len() {
                let line = record.position().map_or(0, csv::Position::line);
                return Err(invalid(format!(
                    "line {line}: {} instead of {}, one for each column",
                    counted(record.len(), "value"),
                    columns.len()
                )));
            }
            rows.push(record.iter().map(<[u8]>::to_vec).collect());
        }
        match rows.is_empty() {
            true => Err(invalid("there are no rows after the names of the columns")),
            false => Ok(DataRows { columns, rows }),
        }
    }

    /// Returns the names of the columns.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// Returns the number of rows.
    #[expect(clippy::len_without_is_empty, reason = "there is at least one row")]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns a value. Rows repeat after the last one.
    pub(super) fn value(&self, row: u64, column: usize) -> &[u8] {
        &self.rows[(row % self.rows.len() as u64) as usize][column]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_they_are_quoted() {
        let rows = DataRows::parse(b"a,b\r\n1,\"x, \"\"y\"\"\nz\"\r\n,2\r\n").unwrap();
        assert_eq!((rows.value(0, 1), rows.value(1, 0)), (&b"x, \"y\"\nz"[..], &b""[..]));
        assert_eq!(rows.value(5, 1), b"2");
    }

    #[test]
    fn malformed_file_names_the_line() {
        for (text, part) in [
            ("", "there are no rows"),
            ("a,b\n", "there are no rows"),
            ("a,b\n1,2\n3\n", "line 3: 1 value instead of 2"),
            ("a,b\n1,2,3\n", "line 2: 3 values instead of 2"),
            ("a,a\n1,2\n", "line 1: the column 'a' occurs twice"),
            ("a b\n1\n", "line 1: the column 'a b' is not a name"),
            ("n\n1\n", "line 1: the column 'n' has the name of a field"),
        ] {
            let error = DataRows::parse(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
