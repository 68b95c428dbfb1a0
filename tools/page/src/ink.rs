//! Colours as classes.
//!
//! The drawing library only supports RGB colours, which cannot follow the reader's choice of light
//! or dark. Each ink is therefore drawn in a placeholder colour, which the finished text replaces
//! with the ink's class. The page's style sheet defines what a class looks like.

use plotters::style::RGBColor;

/// Number of inks for series. The second half has the colours of the first, with dashed lines and
/// hollow dots. Further series start again with the first ink.
pub const SERIES: usize = 12;

/// Number of colour steps, from low to high, in a [`Matrix`](crate::Matrix).
pub const HEATS: usize = 9;

/// The role of a part of a drawing, which decides its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ink {
    Text,
    Grid,
    Axis,
    /// A series, with any number.
    Series(usize),
}

const FIRST_SERIES: u8 = 4;
const END_OF_SERIES: u8 = FIRST_SERIES + SERIES as u8;

impl Ink {
    /// Returns the placeholder colour of this ink.
    pub(crate) fn color(self) -> RGBColor {
        RGBColor(0, 0, self.number())
    }

    fn number(self) -> u8 {
        match self {
            Ink::Text => 1,
            Ink::Grid => 2,
            Ink::Axis => 3,
            Ink::Series(series) => FIRST_SERIES + (series % SERIES) as u8,
        }
    }
}

fn name(number: u8) -> String {
    match number {
        1 => "text".into(),
        2 => "grid".into(),
        3 => "axis".into(),
        number => format!("s{}", number - FIRST_SERIES),
    }
}

/// Replaces the placeholder colours of a picture with classes: `fill-NAME` and `stroke-NAME`.
///
/// Text in the picture cannot be mistaken for an attribute, since its quotation marks are escaped.
pub(crate) fn with_classes(mut svg: String) -> String {
    for number in 1..END_OF_SERIES {
        for attribute in ["fill", "stroke"] {
            let colour = format!("{attribute}=\"#0000{number:02X}\"");
            if svg.contains(&colour) {
                svg = svg.replace(&colour, &format!("class=\"{attribute}-{}\"", name(number)));
            }
        }
    }
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_ink_has_a_class_of_its_own() {
        let series = (0..SERIES).map(Ink::Series);
        let inks = [Ink::Text, Ink::Grid, Ink::Axis].into_iter().chain(series);
        let names: std::collections::BTreeSet<String> =
            inks.map(|ink| name(ink.number())).collect();
        assert_eq!(names.len(), 3 + SERIES);
        assert_eq!(Ink::Series(SERIES + 1).color(), Ink::Series(1).color());
    }

    #[test]
    fn colours_become_classes() {
        let RGBColor(red, green, blue) = Ink::Series(1).color();
        let drawn = format!("<line stroke=\"#{red:02X}{green:02X}{blue:02X}\" x1=\"1\"/>");
        assert_eq!(with_classes(drawn), "<line class=\"stroke-s1\" x1=\"1\"/>");
        let other = "<rect fill=\"#FFFFFF\"/>".to_owned();
        assert_eq!(with_classes(other.clone()), other);
    }
}
