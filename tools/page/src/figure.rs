use serde::Serialize;

/// A rendered chart.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// The title of the figure.
    pub title: String,
    /// A sentence below the picture; may be empty.
    pub note: String,
    /// The picture, as SVG.
    pub svg: String,
    /// Whether there was anything to draw.
    pub has_data: bool,
}
