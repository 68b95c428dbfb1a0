//! A cell: the parameters under which every contender is measured.

use std::fmt;
use std::time::Duration;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

/// The value of a parameter.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// A count or a size.
    Number(u64),
    /// A name, such as an access pattern.
    Word(String),
}

impl From<u64> for Value {
    fn from(number: u64) -> Value {
        Value::Number(number)
    }
}

impl From<&str> for Value {
    fn from(word: &str) -> Value {
        Value::Word(word.to_owned())
    }
}

/// Named parameters, in the order in which they are displayed and sent to a contender.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Cell(IndexMap<String, Value>);

impl Cell {
    /// Creates a cell with these parameters.
    pub fn new<const N: usize>(parameters: [(&str, Value); N]) -> Cell {
        Cell(parameters.map(|(name, value)| (name.to_owned(), value)).into())
    }

    /// Returns the cell with another parameter at the end.
    pub fn with(&self, name: &str, value: Value) -> Cell {
        let mut all = self.0.clone();
        all.insert(name.to_owned(), value);
        Cell(all)
    }

    /// Returns the parameter with this name if it is a number.
    pub fn number(&self, name: &str) -> Option<u64> {
        match self.0.get(name)? {
            Value::Number(number) => Some(*number),
            Value::Word(_) => None,
        }
    }

    /// Returns all parameters in order.
    pub fn parameters(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// Returns the cell without the named parameter.
    pub fn without(&self, name: &str) -> Cell {
        let mut rest = self.0.clone();
        rest.shift_remove(name);
        Cell(rest)
    }

    /// Returns the values separated by spaces, which is the job that a contender reads.
    pub fn job(&self) -> String {
        self.0.values().map(Value::to_string).collect::<Vec<_>>().join(" ")
    }

    /// Returns the job, followed by the seconds to measure.
    pub fn timed_job(&self, slice: Duration) -> String {
        format!("{} {}", self.job(), slice.as_secs_f64())
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Number(number) => number.fmt(f),
            Value::Word(word) => word.fmt(f),
        }
    }
}

/// Writes the parameters, such as `50 connections × 128 bytes` or `randread × depth 32`.
impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, value)) in self.0.iter().enumerate() {
            let times = if index == 0 { "" } else { " × " };
            match (value, name.strip_suffix('s')) {
                (Value::Word(word), _) => write!(f, "{times}{word}")?,
                (Value::Number(number), _) if name.starts_with('%') => {
                    write!(f, "{times}{number} {name}")?
                }
                (Value::Number(1), Some(one)) => write!(f, "{times}1 {}", singular(one))?,
                (Value::Number(number), Some(_)) => write!(f, "{times}{number} {name}")?,
                (Value::Number(number), None) => write!(f, "{times}{name} {number}")?,
            }
        }
        Ok(())
    }
}

/// Turns a plural without its final `s` into the singular: `entrie` becomes `entry`.
fn singular(stem: &str) -> String {
    stem.strip_suffix("ie").map_or_else(|| stem.to_owned(), |stem| format!("{stem}y"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_has_a_display_a_job_and_a_json_form() {
        let cell = Cell::new([("connections", 50.into()), ("bytes", 128.into())]);
        assert_eq!(cell.to_string(), "50 connections × 128 bytes");
        let shared = cell.with("% of peak", 10.into());
        assert_eq!(shared.to_string(), "50 connections × 128 bytes × 10 % of peak");
        assert_eq!(shared.without("% of peak"), cell);
        assert_eq!(Cell::new([("entries", 1.into())]).to_string(), "1 entry");
        let cell = Cell::new([("pattern", "randread".into()), ("depth", 4.into())]);
        assert_eq!(cell.to_string(), "randread × depth 4");
        assert_eq!(cell.timed_job(Duration::from_millis(50)), "randread 4 0.05");
        assert_eq!((cell.number("depth"), cell.number("pattern")), (Some(4), None));
        let json = serde_json::to_string(&cell).expect("serialization failed");
        assert_eq!(json, r#"{"pattern":"randread","depth":4}"#);
        assert_eq!(serde_json::from_str::<Cell>(&json).expect("the cell cannot be parsed"), cell);
        assert!(serde_json::from_str::<Cell>(r#"{"depth":-1}"#).is_err());
    }
}
