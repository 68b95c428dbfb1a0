//! A page as data, and its HTML form.

use crate::figure::Figure;
use minijinja::{Environment, Error, context};
use serde::Serialize;

const TEMPLATE: &str = include_str!("../templates/page.html");
const STYLE: &str = include_str!("../templates/page.css");

/// The contents of a page.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Page {
    /// The title of the page and of the browser window.
    pub title: String,
    /// The line below the title.
    pub subtitle: String,
    /// Links to other files, such as other forms of this page.
    pub links: Vec<Link>,
    /// Warnings that the reader must know before relying on the figures.
    pub notices: Vec<String>,
    /// Charts, tables and text, in this order.
    pub sections: Vec<Section>,
}

/// A part of the page under a heading.
#[derive(Clone, Debug, Serialize)]
pub struct Section {
    /// The heading, which is visible even if the section is folded.
    pub heading: String,
    /// The contents. Adjacent figures share a row if there is space.
    pub blocks: Vec<Block>,
    /// Whether the section is folded until the reader opens it.
    pub is_folded: bool,
}

impl Section {
    /// Creates an open section.
    pub fn new(heading: &str, blocks: Vec<Block>) -> Section {
        Section { heading: heading.into(), blocks, is_folded: false }
    }

    /// Folds the section, so that only its heading is visible until the reader opens it.
    pub fn folded(self) -> Section {
        Section { is_folded: true, ..self }
    }
}

/// A part of a section.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "kind", content = "content", rename_all = "snake_case")]
pub enum Block {
    /// A paragraph.
    Text(String),
    /// Program input or output, shown verbatim.
    Code(String),
    /// A table.
    Table(Table),
    /// A table with marked cells.
    Matrix(Matrix),
    /// A list of other pages.
    Entries(Vec<Entry>),
    /// A chart.
    Figure(Figure),
}

/// A link to another file.
#[derive(Clone, Debug, Serialize)]
pub struct Link {
    /// The address, relative to this page and percent-encoded.
    pub href: String,
    /// The text of the link.
    pub text: String,
}

/// A list entry for another page, with a summary of it.
#[derive(Clone, Debug, Serialize)]
pub struct Entry {
    /// The link to the page. Its address is empty if the page does not exist.
    pub link: Link,
    /// A few words beside the link, such as a date or a state; may be empty.
    pub note: String,
    /// A paragraph below the link.
    pub text: String,
}

/// A table. With titles, the first column is aligned to the left and the others to the right.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Table {
    /// The titles of the columns; may be empty.
    pub head: Vec<String>,
    /// The rows, each with the same number of cells.
    pub rows: Vec<Vec<String>>,
}

/// A table with names on the left and cells that may be coloured.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Matrix {
    /// The caption above the table.
    pub title: String,
    /// A sentence below the table; may be empty.
    pub note: String,
    /// The meaning of each colour step, starting with the lowest; may be empty.
    pub key: Vec<String>,
    /// The titles of all columns, including the columns of names.
    pub head: Vec<String>,
    /// The rows, from the top.
    pub rows: Vec<MatrixRow>,
}

/// A row of a [`Matrix`].
#[derive(Clone, Debug, Default, Serialize)]
pub struct MatrixRow {
    /// The names on the left, the same number in each row.
    pub names: Vec<String>,
    /// The cells to the right of the names.
    pub cells: Vec<MatrixCell>,
    /// Whether the row is greyed out.
    pub is_muted: bool,
}

/// A cell of a [`Matrix`].
#[derive(Clone, Debug, Default, Serialize)]
pub struct MatrixCell {
    /// The text of the cell.
    pub text: String,
    /// The colour, as one of [`HEATS`](crate::HEATS) steps from low to high, or `None` if the cell
    /// has no value.
    pub heat: Option<usize>,
    /// Whether the text is bold.
    pub is_strong: bool,
}

impl From<String> for MatrixCell {
    fn from(text: String) -> MatrixCell {
        MatrixCell { text, ..MatrixCell::default() }
    }
}

impl Page {
    /// Renders the page as one HTML file. Text is escaped.
    pub fn html(&self) -> String {
        self.try_html().expect("the constant template does not match the data")
    }

    fn try_html(&self) -> Result<String, Error> {
        let mut environment = Environment::new();
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        environment.set_keep_trailing_newline(true);
        environment.add_template("page.html", TEMPLATE)?;
        environment.get_template("page.html")?.render(context! { page => self, style => STYLE })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn entry(href: &str) -> Entry {
        let link = Link { href: href.into(), text: "another <page>".into() };
        Entry { link, note: "finished".into(), text: "A wins.".into() }
    }

    fn matrix() -> Matrix {
        let cell =
            |text: &str, heat| MatrixCell { text: text.into(), heat, is_strong: heat == Some(0) };
        let cells = vec![cell("1", Some(0)), cell("2.5 | <3>", Some(8)), cell("–", None)];
        Matrix {
            title: "Distances".into(),
            key: vec!["1".into(), "2".into()],
            head: ["cell", "", "a", "b", "c"].map(String::from).into(),
            rows: vec![MatrixRow {
                names: vec!["50".into(), "published".into()],
                cells,
                is_muted: true,
            }],
            ..Matrix::default()
        }
    }

    pub(crate) fn page() -> Page {
        let table = Table {
            head: vec!["errors".into(), "count".into()],
            rows: vec![vec!["reset <by> peer".into(), "3".into()]],
        };
        Page {
            title: "A & B".into(),
            subtitle: "http://127.0.0.1:80/?a=1&b=<2>".into(),
            links: vec![Link { href: "a%26b.csv".into(), text: "CSV".into() }],
            notices: vec!["too <short>".into()],
            sections: vec![
                Section::new("Errors", vec![Block::Table(table)]),
                Section::new(
                    "The rest",
                    vec![
                        Block::Code("annulus load '<x>'".into()),
                        Block::Text("Text.".into()),
                        Block::Matrix(matrix()),
                        Block::Entries(vec![entry("b.html"), entry("")]),
                    ],
                )
                .folded(),
            ],
        }
    }

    #[test]
    fn everything_is_on_the_page_and_escaped() {
        let html = page().html();
        for part in [
            "<title>A &amp; B</title>",
            "b=&lt;2&gt;",
            "<li>too &lt;short&gt;</li>",
            "reset &lt;by&gt; peer",
            "annulus load &#x27;&lt;x&gt;&#x27;",
            "<a href=\"a%26b.csv\">CSV</a>",
            "<td class=\"heat-h0 strong\">1</td><td class=\"heat-h8\">2.5 | &lt;3&gt;</td><td>–</td>",
            "<tr class=\"muted\"><th scope=\"row\">50</th><th scope=\"row\">published</th>",
            "<a href=\"b.html\">another &lt;page&gt;</a>",
            "<h2>Errors</h2>",
            "<details>\n<summary><h2>The rest</h2></summary>",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
    }

    #[test]
    fn nothing_is_loaded_from_elsewhere_and_no_script_runs() {
        let html = Page { subtitle: String::new(), ..page() }.html();
        for part in ["http:", "https:", "<script", "@import", "url(", "src="] {
            assert!(!html.contains(part), "{part} is in {html}");
        }
        assert!(html.contains("default-src 'none'"));
    }

    #[test]
    fn an_empty_page_is_a_page() {
        let html = Page::default().html();
        assert!(html.starts_with("<!DOCTYPE html>") && html.ends_with("</html>\n"), "{html}");
    }
}
