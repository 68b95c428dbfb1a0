//! The page as Markdown, for terminals, messages and reviews.

use crate::page::{Block, Entry, Link, Matrix, Page, Section, Table};

impl Page {
    /// Renders the page as Markdown. Only the titles of pictures are kept. Text is escaped.
    pub fn markdown(&self) -> String {
        let mut parts = vec![format!("# {}", escaped(&self.title))];
        parts.extend(paragraph(&self.subtitle));
        let notice = |text: &String| format!("> **!** {}", escaped(text));
        parts.extend(lines(self.notices.iter().map(notice)));
        parts.extend(self.sections.iter().map(section));
        let links: Vec<String> = self.links.iter().map(linked).collect();
        parts.extend((!links.is_empty()).then(|| links.join(" · ")));
        parts.join("\n\n") + "\n"
    }
}

fn section(section: &Section) -> String {
    let heading = format!("## {}", escaped(&section.heading));
    let blocks = section.blocks.iter().map(block).filter(|block| !block.is_empty());
    [heading].into_iter().chain(blocks).collect::<Vec<_>>().join("\n\n")
}

fn block(block: &Block) -> String {
    match block {
        Block::Text(text) => escaped(text),
        Block::Code(code) => fenced(code),
        Block::Table(Table { head, rows }) => table(head, rows.iter().cloned(), 1),
        Block::Matrix(of) => matrix(of),
        Block::Entries(entries) => lines(entries.iter().map(entry)).unwrap_or_default(),
        Block::Figure(figure) => format!("*{}: see the page.*", escaped(&figure.title)),
    }
}

fn matrix(matrix: &Matrix) -> String {
    let names = matrix.rows.first().map_or(1, |row| row.names.len());
    let rows = matrix.rows.iter().map(|row| {
        let cells = row.cells.iter().map(|cell| cell.text.clone());
        row.names.iter().cloned().chain(cells).collect()
    });
    let title = format!("**{}**", escaped(&matrix.title));
    let table = table(&matrix.head, rows, names);
    [Some(title), Some(table), paragraph(&matrix.note)]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join("\n\n")
}

fn entry(Entry { link, note, text }: &Entry) -> String {
    let note = if note.is_empty() { String::new() } else { format!(" ({})", escaped(note)) };
    format!("- {}{note}: {}", linked(link), escaped(text))
}

fn linked(Link { href, text }: &Link) -> String {
    if href.is_empty() { escaped(text) } else { format!("[{}]({href})", escaped(text)) }
}

/// Formats a table with its first `names` columns aligned to the left and the other columns to the
/// right. Without titles, all columns are aligned to the left, and the header line is empty,
/// because Markdown requires one.
fn table(head: &[String], rows: impl Iterator<Item = Vec<String>>, names: usize) -> String {
    let rows: Vec<Vec<String>> = rows.collect();
    let columns = rows.iter().map(Vec::len).chain([head.len()]).max().unwrap_or(0);
    let line = |cells: &[String]| {
        let cells = (0..columns)
            .map(|column| cells.get(column).map_or(String::new(), |cell| escaped(cell)));
        format!("| {} |", cells.collect::<Vec<_>>().join(" | "))
    };
    let rule =
        (0..columns).map(|column| if column < names || head.is_empty() { ":--" } else { "--:" });
    let rule = format!("| {} |", rule.collect::<Vec<_>>().join(" | "));
    let rows = rows.iter().map(|row| line(row));
    [line(head), rule].into_iter().chain(rows).collect::<Vec<_>>().join("\n")
}

fn paragraph(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| escaped(text))
}

fn lines(all: impl Iterator<Item = String>) -> Option<String> {
    let all: Vec<String> = all.collect();
    (!all.is_empty()).then(|| all.join("\n"))
}

/// Formats a code block, with a fence that is longer than any run of backticks in it.
fn fenced(code: &str) -> String {
    let longest = code.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}\n{code}\n{fence}")
}

/// Returns the text on one line, and escapes the characters that have a meaning in Markdown or in a
/// table.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        match c {
            '\n' | '\r' => escaped.push(' '),
            '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '|' | '#' | '~' => {
                escaped.extend(['\\', c])
            }
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::tests::page;

    #[test]
    fn everything_but_the_pictures_is_there() {
        let text = page().markdown();
        for part in [
            "# A & B\n",
            "> **!** too \\<short\\>\n",
            "## Errors\n",
            "| errors | count |\n| :-- | --: |\n| reset \\<by\\> peer | 3 |\n",
            "```\nannulus load '<x>'\n```\n",
            "**Distances**\n\n| cell |  | a | b | c |\n| :-- | :-- | --: | --: | --: |\n",
            "| 50 | published | 1 | 2.5 \\| \\<3\\> | – |\n",
            "- [another \\<page\\>](b.html) (finished): A wins.\n- another \\<page\\> (finished): A wins.\n",
            "[CSV](a%26b.csv)\n",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        assert_eq!(Page::default().markdown(), "# \n");
    }

    #[test]
    fn code_cannot_end_its_block() {
        assert_eq!(fenced("a ``` b"), "````\na ``` b\n````");
        assert_eq!(escaped("a\n| b * `c`"), "a \\| b \\* \\`c\\`");
    }
}
