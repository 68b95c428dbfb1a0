//! The two sides of a comparison: the subject of the run and its rivals.

use super::Bench;

/// The names of contenders that are annulus. If no other program takes part, the subject is the
/// first name in this list that takes part.
const OWN_CONTENDERS: [&str; 12] = [
    "annulus",
    "uring",
    "ring",
    "tasks",
    "epoll",
    "guest",
    "guest-tasks",
    "uring-1",
    "lookup",
    "task",
    "uring-group",
    "epoll-group",
];

/// The prefix of contenders that are annulus with another mode of the ring.
const OWN_MODE_PREFIX: &str = "uring+";

/// The name of annulus's side if it competes with other programs.
const OWN_NAME: &str = "annulus";

/// The maximum number of rivals that are compared one by one.
const MAX_PAIRS: usize = 4;

/// The two sides of a comparison, as indices of contenders.
///
/// If annulus competes with other programs, its side has all its drivers, and the rivals are all
/// other programs: in each cell its best driver meets the best rival. Otherwise the subject is the
/// first contender that is annulus, or the baseline, and all others are rivals. In a user's
/// comparison, the subject is the baseline, whatever its name.
#[derive(Clone, Debug)]
pub(super) struct Sides {
    /// The contenders of the subject's side; never empty.
    pub(super) ours: Vec<usize>,
    /// All others.
    pub(super) rivals: Vec<usize>,
    /// The name of the subject.
    pub(super) name: String,
    /// Whether annulus competes with other programs.
    pub(super) is_own: bool,
}

impl Sides {
    pub(super) fn of(bench: &Bench) -> Sides {
        let specs = &bench.contenders.specs;
        let baseline = bench.contenders.baseline_index();
        if bench.contenders.named_by_user {
            return Sides::of_subject(bench, baseline);
        }
        let (ours, others): (Vec<usize>, Vec<usize>) =
            (0..specs.len()).partition(|&index| is_own(&specs[index].name));
        if !ours.is_empty() && !others.is_empty() {
            return Sides { ours, rivals: others, name: OWN_NAME.to_owned(), is_own: true };
        }
        let place = |own: &&str| specs.iter().position(|spec| spec.name == **own);
        Sides::of_subject(bench, OWN_CONTENDERS.iter().find_map(place).unwrap_or(baseline))
    }

    /// Returns the sides in which all contenders but one are rivals.
    fn of_subject(bench: &Bench, subject: usize) -> Sides {
        let specs = &bench.contenders.specs;
        Sides {
            ours: vec![subject],
            rivals: (0..specs.len()).filter(|&index| index != subject).collect(),
            name: specs[subject].name.clone(),
            is_own: false,
        }
    }

    /// Returns the sides with these contenders, or `None` if one of them is not measured.
    pub(super) fn named(bench: &Bench, ours: &[&str], rival: &str) -> Option<Sides> {
        let index = |name: &str| bench.contenders.specs.iter().position(|one| one.name == name);
        let indices = ours.iter().map(|name| index(name)).collect::<Option<Vec<usize>>>()?;
        let first = *ours.first()?;
        let is_own = ours.iter().all(|name| is_own(name));
        let name = if is_own { OWN_NAME } else { first };
        Some(Sides { ours: indices, rivals: vec![index(rival)?], name: name.to_owned(), is_own })
    }

    /// Returns a pair of sides for each rival if there are few rivals and annulus does not compete
    /// with other programs. Otherwise returns only these two sides.
    pub(super) fn pairs(&self) -> Vec<Sides> {
        if self.is_own || self.rivals.len() > MAX_PAIRS {
            return vec![self.clone()];
        }
        self.rivals.iter().map(|&rival| Sides { rivals: vec![rival], ..self.clone() }).collect()
    }
}

/// Returns true if the contender with this name is annulus.
pub(crate) fn is_own(name: &str) -> bool {
    OWN_CONTENDERS.contains(&name) || name.starts_with(OWN_MODE_PREFIX)
}
