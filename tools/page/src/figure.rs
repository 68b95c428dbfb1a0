use serde::Serialize;

/// A rendered chart.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// The caption above the picture.
    pub title: String,
    /// A sentence below the picture; may be empty.
    pub note: String,
    /// The picture, as an `svg` element for an HTML page.
    pub svg: String,
    /// Whether there was anything to draw. If not, the page shows a sentence instead of the
    /// picture.
    pub has_data: bool,
}
