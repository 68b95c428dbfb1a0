//! Which part of a run this process is, according to the program that launched it.

use annulus_load::{InvalidValue, Part};

/// The variables of a launcher: the number of this process from 0, and the number of processes.
#[derive(Debug)]
struct Launcher {
    name: &'static str,
    rank: &'static str,
    /// Variables for the number of processes. The first variable that is set counts.
    sizes: &'static [&'static str],
}

/// The launchers in order of precedence: the innermost comes first, since mpirun may run under
/// srun.
const LAUNCHERS: [Launcher; 5] = [
    Launcher { name: "Open MPI", rank: "OMPI_COMM_WORLD_RANK", sizes: &["OMPI_COMM_WORLD_SIZE"] },
    Launcher { name: "MPICH", rank: "PMI_RANK", sizes: &["PMI_SIZE"] },
    Launcher { name: "MPI", rank: "PMIX_RANK", sizes: &["PMIX_SIZE"] },
    Launcher {
        name: "Slurm",
        rank: "SLURM_PROCID",
        sizes: &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"],
    },
    Launcher { name: "Kubernetes", rank: "JOB_COMPLETION_INDEX", sizes: &[] },
];

/// The part that a launcher gives to this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Launched {
    pub(super) part: Part,
    pub(super) launcher: &'static str,
}

/// Returns the part that a launcher gives to this process, or `None` without a launcher. `count` is
/// the number of parts if the user has given it.
///
/// # Errors
/// Says which variable is missing or invalid.
pub(super) fn part(
    variable: impl Fn(&str) -> Option<String>,
    count: Option<usize>,
) -> Result<Option<Launched>, String> {
    let number = |name: &str| match variable(name) {
        None => Ok(None),
        Some(text) => text.parse::<usize>().map(Some).map_err(|_| {
            format!("{name} is '{text}', but must be a number: unset it, or use --part")
        }),
    };
    for Launcher { name, rank, sizes } in &LAUNCHERS {
        let Some(index) = number(rank)? else { continue };
        let size = sizes.iter().find_map(|name| number(name).transpose()).transpose()?;
        let Some(count) = count.or(size) else {
            // PMIx gives a rank without a size to processes that another launcher has started.
            if *rank == "PMIX_RANK" {
                continue;
            }
            return Err(format!(
                "{name} gives the number of this part ({rank}={index}), but not how many there \
                 are: add --parts COUNT"
            ));
        };
        let invalid = |error: InvalidValue| format!("{rank}={index} of {name}: {error}");
        let part = Part::new(index, count).map_err(invalid)?;
        return Ok(Some(Launched { part, launcher: name }));
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(variables: &[(&str, &str)], count: Option<usize>) -> Result<Option<String>, String> {
        let variable = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        let launched = part(variable, count)?;
        Ok(launched.map(|launched| format!("{} {}", launched.launcher, launched.part)))
    }

    #[test]
    fn each_launcher_gives_rank_and_size() {
        let open_mpi = [("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "3")];
        let mpich = [("PMI_RANK", "2"), ("PMI_SIZE", "3")];
        let slurm = [("SLURM_PROCID", "1"), ("SLURM_NTASKS", "9"), ("SLURM_STEP_NUM_TASKS", "4")];
        let job = [("JOB_COMPLETION_INDEX", "1")];
        for (variables, count, expected) in [
            (&open_mpi[..], None, "Open MPI 1/3"),
            (&mpich, None, "MPICH 3/3"),
            (&slurm, None, "Slurm 2/4"),
            (&slurm[..2], None, "Slurm 2/9"),
            (&job, Some(2), "Kubernetes 2/2"),
            (&[slurm.as_slice(), &open_mpi].concat(), None, "Open MPI 1/3"),
            (&[slurm.as_slice(), &[("PMIX_RANK", "1")]].concat(), None, "Slurm 2/4"),
        ] {
            assert_eq!(found(variables, count), Ok(Some(expected.into())), "{variables:?}");
        }
        assert_eq!(found(&[], None), Ok(None));
        assert_eq!(found(&[("PMIX_RANK", "1")], None), Ok(None));
    }

    #[test]
    fn missing_or_invalid_variable_is_named() {
        for (variables, count, part) in [
            (&[("JOB_COMPLETION_INDEX", "1")][..], None, "add --parts COUNT"),
            (&[("JOB_COMPLETION_INDEX", "4")], Some(4), "part 5 of 4 does not exist"),
            (&[("PMI_RANK", "x"), ("PMI_SIZE", "3")], None, "PMI_RANK is 'x'"),
            (&[("PMI_RANK", "1"), ("PMI_SIZE", "-3")], None, "PMI_SIZE is '-3'"),
            (&[("PMI_RANK", "1"), ("PMI_SIZE", "2000")], None, "cannot have 2000 parts"),
        ] {
            let error = found(variables, count).unwrap_err();
            assert!(error.contains(part), "{variables:?}: {error}");
        }
    }
}
