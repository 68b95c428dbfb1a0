//! A table with a name for every row and column, within 80 columns: what finds no room goes below, under the same names.

use crate::page::COLUMNS;

/// Space between columns.
const GAP: usize = 2;

/// A table that grows row by row.
#[derive(Debug)]
pub(crate) struct Grid {
    /// The corner and the names of the columns first, then each row's name and its cells, or a heading alone.
    lines: Vec<Vec<String>>,
}

impl Grid {
    /// An empty table with this in its corner.
    pub(crate) fn new(corner: &str, columns: impl IntoIterator<Item = String>) -> Grid {
        Grid { lines: vec![[corner.to_owned()].into_iter().chain(columns).collect()] }
    }

    /// Adds a row, with a cell for every column.
    pub(crate) fn row(&mut self, name: &str, cells: impl IntoIterator<Item = String>) {
        let row: Vec<String> = [name.to_owned()].into_iter().chain(cells).collect();
        assert_eq!(row.len(), self.lines[0].len(), "a row has a cell for every column");
        self.lines.push(row);
    }

    /// Adds a line of text that stands above the rows to come, in every block.
    pub(crate) fn heading(&mut self, text: &str) {
        self.lines.push(vec![text.to_owned()]);
    }

    /// The table as lines: names to the left, cells to the right.
    pub(crate) fn finish(self) -> String {
        let widths: Vec<usize> = (0..self.lines[0].len()).map(|place| self.width(place)).collect();
        let blocks: Vec<String> =
            blocks(&widths).into_iter().map(|block| self.block(&block, &widths)).collect();
        blocks.join("\n")
    }

    fn width(&self, place: usize) -> usize {
        let rows = self.lines.iter().filter(|line| line.len() == self.lines[0].len());
        rows.map(|line| line[place].chars().count()).max().unwrap_or(0)
    }

    fn block(&self, columns: &[usize], widths: &[usize]) -> String {
        let mut text = String::new();
        for line in &self.lines {
            let mut shown = format!("{:<1$}", line[0], widths[0]);
            for &place in columns.iter().filter(|&&place| place < line.len()) {
                shown += &format!("{:>1$}", line[place], widths[place] + GAP);
            }
            text += shown.trim_end();
            text += "\n";
        }
        text
    }
}

/// Which columns stand side by side: as many as fit beside the rows' names, at least one.
fn blocks(widths: &[usize]) -> Vec<Vec<usize>> {
    let mut blocks: Vec<Vec<usize>> = Vec::new();
    let mut room = 0;
    for (place, width) in widths.iter().enumerate().skip(1) {
        let needed = width + GAP;
        match blocks.last_mut().filter(|_| needed <= room) {
            Some(block) => block.push(place),
            None => {
                blocks.push(vec![place]);
                room = COLUMNS.saturating_sub(widths[0]);
            }
        }
        room = room.saturating_sub(needed);
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_left_and_cells_right() {
        let mut grid = Grid::new("entries", ["ring", "liburing"].map(String::from));
        grid.row("64", ["17", "16.5"].map(String::from));
        grid.row("4096", ["1", "×"].map(String::from));
        assert_eq!(
            grid.finish(),
            "entries  ring  liburing\n64         17      16.5\n4096        1         ×\n"
        );
    }

    #[test]
    fn what_finds_no_room_goes_below() {
        let mut grid = Grid::new("", (0..5).map(|n| format!("column {n} of a wide table")));
        grid.row("row", (0..5).map(|n| n.to_string()));
        let text = grid.finish();
        assert!(text.lines().all(|line| line.chars().count() <= COLUMNS), "{text}");
        assert_eq!(text.matches("row").count(), 3);
        assert_eq!(text.lines().count(), 8);
    }
}
