//! The page as data, and the file made of it.

use crate::figure::Figure;
use minijinja::{Environment, Error, context};
use serde::Serialize;

const TEMPLATE: &str = include_str!("../templates/page.html");
const STYLE: &str = include_str!("../templates/page.css");

/// A page.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Page {
    /// The title, which is also that of the window.
    pub title: String,
    /// A line below it.
    pub subtitle: String,
    /// What is to be grasped at once, in this order.
    pub tiles: Vec<Tile>,
    /// What a reader must know before the figures are believed.
    pub notices: Vec<Notice>,
    /// The rest.
    pub sections: Vec<Section>,
}

/// One figure in large type.
#[derive(Clone, Debug, Serialize)]
pub struct Tile {
    /// What it is.
    pub label: String,
    /// The figure.
    pub value: String,
    /// A few words below; may be empty.
    pub note: String,
}

/// A reservation.
#[derive(Clone, Debug, Serialize)]
pub struct Notice {
    /// What is the matter.
    pub text: String,
    /// What to do about it; may be empty.
    pub advice: String,
}

/// A part of the page under a heading.
#[derive(Clone, Debug, Serialize)]
pub struct Section {
    /// The heading.
    pub heading: String,
    /// What is in it. Figures beside one another share a row if there is space.
    pub blocks: Vec<Block>,
}

/// A piece of a section.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "kind", content = "content", rename_all = "snake_case")]
pub enum Block {
    /// A paragraph.
    Text(String),
    /// Text as a program takes or prints it.
    Code(String),
    /// A table.
    Table(Table),
    /// A chart.
    Figure(Figure),
}

/// A table: the first column is aligned to the left, the others to the right.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Table {
    /// The titles of the columns; no titles if it is empty.
    pub head: Vec<String>,
    /// The rows, of as many cells each.
    pub rows: Vec<Vec<String>>,
}

impl Page {
    /// The page as one file of HTML. Texts are escaped.
    pub fn html(&self) -> String {
        self.try_html().expect("a template that is a constant, and data of its form")
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
mod tests {
    use super::*;

    fn page() -> Page {
        let table = Table {
            head: vec!["errors".into(), "count".into()],
            rows: vec![vec!["reset <by> peer".into(), "3".into()]],
        };
        Page {
            title: "A & B".into(),
            subtitle: "http://127.0.0.1:80/?a=1&b=<2>".into(),
            tiles: vec![Tile { label: "p99".into(), value: "1.2 ms".into(), note: String::new() }],
            notices: vec![Notice { text: "too short".into(), advice: "measure for longer".into() }],
            sections: vec![Section {
                heading: "Errors".into(),
                blocks: vec![
                    Block::Table(table),
                    Block::Code("annulus load '<x>'".into()),
                    Block::Text("Text.".into()),
                ],
            }],
        }
    }

    #[test]
    fn everything_is_on_the_page_and_escaped() {
        let html = page().html();
        for part in [
            "<title>A &amp; B</title>",
            "b=&lt;2&gt;",
            "1.2 ms",
            "too short",
            "measure for longer",
            "reset &lt;by&gt; peer",
            "annulus load &#x27;&lt;x&gt;&#x27;",
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
