//! Text of at most 80 columns: paragraphs, tables, and lists of names and values.

use comfy_table::{CellAlignment, ColumnConstraint, Table, Width, presets::NOTHING};

/// The maximum width of the text.
pub(crate) const TEXT_COLUMNS: usize = 80;

/// The maximum width of a column of names; longer names are wrapped.
const MAX_NAME_COLUMNS: usize = 24;

const COLUMN_GAP: usize = 2;

/// Formats a mark and a wrapped paragraph. Continuation lines align with the paragraph's first
/// word.
pub(crate) fn wrapped(mark: &str, paragraph: &str) -> String {
    let indent = " ".repeat(mark.chars().count());
    let options = textwrap::Options::new(TEXT_COLUMNS).initial_indent(mark);
    textwrap::fill(paragraph, options.subsequent_indent(&indent).break_words(false)) + "\n"
}

/// Names on the left and values on the right, line by line.
#[derive(Debug)]
pub(crate) struct Listing {
    text: String,
    indent: usize,
}

impl Listing {
    /// Creates an empty list whose values are indented by 13 columns.
    pub(crate) fn new() -> Listing {
        Listing { text: String::new(), indent: 13 }
    }

    /// Sets the indentation of the values of later rows.
    pub(crate) fn indent(&mut self, indent: usize) {
        self.indent = indent;
    }

    /// Adds a name and its value; a long value is wrapped.
    pub(crate) fn row(&mut self, name: &str, value: &str) {
        let row = wrapped(&format!("{name:<0$}", self.indent), value);
        self.text += row.trim_end();
        self.text += "\n";
    }

    /// Adds a line as it is.
    pub(crate) fn line(&mut self, line: &str) {
        self.text += line;
        self.text += "\n";
    }

    pub(crate) fn finish(self) -> String {
        self.text
    }
}

/// Formats a table whose first row has the titles. The first `names` columns are left-aligned, the
/// rest right-aligned. Columns that do not fit follow in another block below, with the names
/// repeated.
pub(crate) fn table(names: usize, rows: &[Vec<String>]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let width = |column: usize| match width(column).unwrap_or(0) {
        width if column < names => width.min(MAX_NAME_COLUMNS) + COLUMN_GAP,
        width => width + COLUMN_GAP,
    };
    let left: usize = (0..names).map(width).sum::<usize>() - COLUMN_GAP;
    let mut blocks: Vec<Vec<usize>> = Vec::new();
    let mut room = 0;
    for column in names..rows[0].len() {
        match blocks.last_mut().filter(|_| width(column) <= room) {
            Some(block) => block.push(column),
            None => {
                blocks.push((0..names).chain([column]).collect());
                room = TEXT_COLUMNS.saturating_sub(left);
            }
        }
        room = room.saturating_sub(width(column));
    }
    blocks.iter().map(|block| table_block(names, block, rows)).collect::<Vec<_>>().join("\n")
}

/// Formats the given columns as one block.
fn table_block(names: usize, columns: &[usize], rows: &[Vec<String>]) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING);
    for row in rows {
        table.add_row(columns.iter().map(|&column| &row[column]));
    }
    for (place, column) in table.column_iter_mut().enumerate() {
        column.set_padding((if place == 0 { 0 } else { COLUMN_GAP as u16 }, 0));
        if place < names {
            column.set_constraint(ColumnConstraint::UpperBoundary(Width::Fixed(
                MAX_NAME_COLUMNS as u16 + 2,
            )));
        } else {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt() + "\n"
}

/// Replaces control characters, which a terminal could take for commands, with spaces.
pub(crate) fn printable(text: &str) -> String {
    text.replace(|c: char| c.is_control(), " ")
}

/// Formats a number with thousands separators.
pub(crate) fn thousands(number: u64) -> String {
    annulus_page::text::grouped(number as f64, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows<const N: usize>(rows: [&[&str]; N]) -> Vec<Vec<String>> {
        rows.map(|row| row.iter().map(|cell| cell.to_string()).collect()).into()
    }

    #[test]
    fn paragraphs_are_wrapped_under_their_first_word() {
        let text = wrapped("! ", &"word ".repeat(30));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2);
        assert!(lines[0].starts_with("! word") && lines[1].starts_with("  word"), "{text}");
        assert!(lines.iter().all(|line| line.chars().count() <= TEXT_COLUMNS), "{text}");
        assert_eq!(wrapped("→ ", &"x".repeat(90)).lines().count(), 1);
    }

    #[test]
    fn long_values_are_wrapped() {
        let mut listing = Listing::new();
        listing.row("name", &"word ".repeat(40));
        listing.row("other", "  as it is");
        let text = listing.finish();
        assert!(text.lines().all(|line| line.chars().count() <= TEXT_COLUMNS), "{text}");
        assert_eq!(text.matches("word").count(), 40);
        assert!(text.lines().nth(1).unwrap().starts_with("             word"), "{text}");
        assert!(text.ends_with("\nother          as it is\n"), "{text}");
    }

    #[test]
    fn names_are_left_aligned_and_cells_right_aligned() {
        let rows =
            rows([&["entries", "ring", "liburing"], &["64", "17", "16.5"], &["4096", "1", "×"]]);
        let expected =
            "entries  ring  liburing\n64         17      16.5\n4096        1         ×\n";
        assert_eq!(table(1, &rows), expected);
    }

    #[test]
    fn columns_that_do_not_fit_follow_below_and_long_names_are_wrapped() {
        let titles = ["", "0", "1", "2", "3", "4"].map(|n| format!("column {n} of a wide table"));
        let rows = [
            titles.to_vec(),
            ["a very long name of some row", "0", "1", "2", "3", "4"].map(String::from).to_vec(),
        ];
        let text = table(1, &rows);
        assert!(text.lines().all(|line| line.chars().count() <= TEXT_COLUMNS), "{text}");
        assert_eq!((text.matches("a very long").count(), text.matches("column 3").count()), (3, 1));
    }
}
