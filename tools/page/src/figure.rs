//! A picture with its caption and the key to its colours.

use serde::Serialize;

/// A chart, drawn.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// The title of the figure.
    pub title: String,
    /// A sentence below; may be empty.
    pub note: String,
    /// The picture, as SVG.
    pub svg: String,
    /// The meanings of the colours; may be empty.
    pub key: Vec<Key>,
    /// Whether there was anything to draw.
    pub has_data: bool,
    /// Whether it takes the whole width of the page.
    pub is_wide: bool,
}

/// The meaning of one colour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Key {
    /// The name of the colour in the page's style.
    pub(crate) ink: String,
    /// The meaning of the colour.
    pub(crate) name: String,
}
