//! Text for people: names on the left, values on the right, within 80 columns.

use std::fmt::Write;

/// What a page has room for.
pub(crate) const COLUMNS: usize = 80;
/// Where values begin, where nothing else is said.
const INDENT: usize = 13;

/// A text that grows line by line.
#[derive(Debug)]
pub(crate) struct Page {
    text: String,
    indent: usize,
}

impl Page {
    pub(crate) fn new() -> Page {
        Page { text: String::new(), indent: INDENT }
    }

    /// Moves the values of the lines to come to this column.
    pub(crate) fn indent(&mut self, indent: usize) {
        self.indent = indent;
    }

    /// A name and its value; a value that is too long goes on below itself.
    pub(crate) fn row(&mut self, name: &str, value: &str) {
        let indent = self.indent;
        let mut name = name;
        for line in wrap(value, COLUMNS - indent) {
            self.line(format!("{name:<indent$}{line}").trim_end());
            name = "";
        }
    }

    /// A line as it is.
    pub(crate) fn line(&mut self, line: &str) {
        writeln!(self.text, "{line}").expect("a String takes everything");
    }

    pub(crate) fn finish(self) -> String {
        self.text
    }
}

/// Breaks a text between words, at least one line; a text that fits stays as it is, spaces and all.
fn wrap(text: &str, width: usize) -> Vec<String> {
    if text.chars().count() <= width {
        return vec![text.to_owned()];
    }
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last_mut().expect("there is one from the start");
        if last.is_empty() {
            last.push_str(word);
        } else if last.chars().count() + 1 + word.chars().count() <= width {
            *last += " ";
            *last += word;
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

/// A paragraph after a mark, its further lines under the first word.
pub(crate) fn wrapped(mark: &str, paragraph: &str) -> String {
    let indent = " ".repeat(mark.chars().count());
    let mut text = String::new();
    let mut line = mark.to_owned();
    let mut empty = true;
    for word in paragraph.split_whitespace() {
        if !empty && line.chars().count() + 1 + word.chars().count() > COLUMNS {
            let _ = writeln!(text, "{line}");
            (line, empty) = (indent.clone(), true);
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    let _ = writeln!(text, "{line}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_values_stay_within_the_page() {
        let mut page = Page::new();
        page.row("name", &"word ".repeat(40));
        page.row("other", "  as it is");
        let text = page.finish();
        assert!(text.lines().all(|line| line.chars().count() <= COLUMNS), "{text}");
        assert_eq!(text.matches("word").count(), 40);
        assert!(
            text.starts_with("name         word") && text.ends_with("\nother          as it is\n"),
            "{text}"
        );
        assert!(text.lines().nth(1).unwrap().starts_with("             word"), "{text}");
    }

    #[test]
    fn paragraphs_are_wrapped_under_their_first_word() {
        let text = wrapped("! ", &"word ".repeat(30));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2);
        assert!(lines[0].starts_with("! word") && lines[1].starts_with("  word"), "{text}");
        assert!(lines.iter().all(|line| line.chars().count() <= COLUMNS), "{text}");
        assert_eq!(wrapped("→ ", &"x".repeat(90)).lines().count(), 1);
    }
}
