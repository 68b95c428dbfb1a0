//! Cells that differ in one number only: the places of a line.

use crate::bench::{Cell, Value};

/// The cells of a bench, as lines and as single ones.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Families {
    pub(super) families: Vec<Family>,
    /// Cells that no other is like.
    pub(super) alone: Vec<usize>,
}

/// Cells that differ in one number.
#[derive(Debug, PartialEq)]
pub(super) struct Family {
    /// The name of the number.
    pub(super) parameter: String,
    /// What they have in common; empty if that is nothing.
    pub(super) title: String,
    /// The cells, by this number.
    pub(super) cells: Vec<usize>,
    /// The number of each.
    pub(super) numbers: Vec<String>,
}

impl Families {
    /// By the number that makes lines of the most cells, and of these by the one that makes the fewest lines.
    pub(super) fn of(cells: &[Cell]) -> Families {
        let mut names: Vec<&str> = Vec::new();
        for (name, value) in cells.iter().flat_map(Cell::parameters) {
            if matches!(value, Value::Number(_)) && !names.contains(&name) {
                names.push(name);
            }
        }
        let all = names.into_iter().map(|name| Families::by(cells, name));
        let best = all.min_by_key(|found| (found.alone.len(), found.families.len()));
        best.unwrap_or_else(|| Families {
            alone: (0..cells.len()).collect(),
            ..Families::default()
        })
    }

    fn by(cells: &[Cell], name: &str) -> Families {
        let mut groups: Vec<(Cell, Vec<(u64, usize)>)> = Vec::new();
        let mut alone = Vec::new();
        for (index, cell) in cells.iter().enumerate() {
            let Some(number) = cell.number(name) else {
                alone.push(index);
                continue;
            };
            let rest = cell.without(name);
            match groups.iter_mut().find(|(known, _)| *known == rest) {
                Some((_, members)) => members.push((number, index)),
                None => groups.push((rest, vec![(number, index)])),
            }
        }
        let (single, several): (Vec<_>, Vec<_>) =
            groups.into_iter().partition(|(_, members)| members.len() == 1);
        alone.extend(single.into_iter().flat_map(|(_, members)| members).map(|(_, index)| index));
        alone.sort_unstable();
        let families = several.into_iter().map(|(rest, mut members)| {
            members.sort_unstable();
            Family {
                parameter: name.to_owned(),
                title: rest.to_string(),
                cells: members.iter().map(|member| member.1).collect(),
                numbers: members.iter().map(|member| member.0.to_string()).collect(),
            }
        });
        Families { families: families.collect(), alone }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(clients: u64, bytes: u64) -> Cell {
        Cell::new([("clients", clients.into()), ("bytes", bytes.into())])
    }

    #[test]
    fn lines_go_over_the_number_with_the_most_values() {
        let cells =
            [cell(50, 1), cell(1, 1), cell(200, 1), cell(1, 128), cell(50, 128), cell(3, 9)];
        let Families { families, alone } = Families::of(&cells);
        let found: Vec<(&str, &str, &[usize])> = families
            .iter()
            .map(|family| (family.parameter.as_str(), family.title.as_str(), &family.cells[..]))
            .collect();
        let expected: [(&str, &str, &[usize]); 2] =
            [("clients", "1 byte", &[1, 0, 2]), ("clients", "128 bytes", &[3, 4])];
        assert_eq!((found, alone), (expected.to_vec(), vec![5]));
        assert_eq!(families[0].numbers, ["1", "50", "200"]);
    }

    #[test]
    fn cells_that_differ_in_words_are_alone() {
        let cells = ["read", "write"].map(|word| Cell::new([("pattern", word.into())]));
        assert_eq!(Families::of(&cells).alone, [0, 1]);
        let load =
            |name: &str, depth: u64| Cell::new([("load", name.into()), ("depth", depth.into())]);
        assert_eq!(Families::of(&[load("a", 1), load("b", 1)]).alone, [0, 1]);
        assert_eq!(Families::of(&[]), Families::default());
    }
}
