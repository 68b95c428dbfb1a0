//! Reads callgrind's counts, and leaves out one crate.

use std::collections::BTreeMap;

/// Returns the instructions of a run, without those between a call into the crate and its return.
/// `dump` is callgrind's output with `--compress-strings=no --compress-pos=no`. The cost of a
/// function follows its `fn=` line; the inclusive cost of its calls of another function follows
/// `cfn=` and `calls=` lines.
pub(crate) fn outside(dump: &str, krate: &str) -> Option<u64> {
    let (mut total, mut inside) = (None::<u64>, 0);
    let (mut caller, mut callee, mut is_call) = ("", "", false);
    for line in dump.lines() {
        if let Some(sum) = line.strip_prefix("summary:") {
            total = sum.trim().parse::<u64>().ok();
        } else if let Some(name) = line.strip_prefix("fn=") {
            caller = name;
        } else if let Some(name) = line.strip_prefix("cfn=") {
            callee = name;
        } else if line.starts_with("calls=") {
            is_call = true;
        } else if std::mem::take(&mut is_call) && callee.contains(krate) && !caller.contains(krate)
        {
            inside += line.split_whitespace().nth(1)?.parse::<u64>().ok()?;
        }
    }
    total?.checked_sub(inside)
}

/// Returns the files below `crates/` whose own lines executed at least `least` instructions,
/// including where they were inlined. Leaves out functions of `krate`, and the files of the
/// simulated kernel.
pub(crate) fn files<'a>(dump: &'a str, krate: &str, least: u64) -> Vec<&'a str> {
    let (mut files, mut file, mut is_call, mut inside) = (BTreeMap::new(), "sim/", false, false);
    for line in dump.lines() {
        if let Some(("fl" | "fi" | "fe", path)) = line.split_once('=') {
            file = path.split_once("/crates/").map_or("sim/", |(_, below)| below);
        } else if let Some(function) = line.strip_prefix("fn=") {
            inside = function.contains(krate);
        } else if line.starts_with("calls=") {
            is_call = true;
        } else if let Some((_, cost)) = line.split_once(' ')
            && let Ok(cost) = cost.parse::<u64>()
            && !(std::mem::take(&mut is_call) || inside)
        {
            *files.entry(file).or_insert(0) += cost;
        }
    }
    files.retain(|file, cost| *cost >= least && !file.starts_with("sim/"));
    files.into_keys().collect()
}

#[cfg(test)]
mod tests {
    use super::{files, outside};

    const DUMP: &str = "\
events: Ir
summary: 1000

fl=/src/main.rs
fn=ours::turn
0 100
cfn=<sim::Kernel as ring::Kernel>::enter
calls=3 0
0 600
cfn=ours::send
calls=1 0
0 200

fn=<sim::Kernel as ring::Kernel>::enter
0 400
cfn=sim::deliver
calls=3 0
0 200

fn=ours::send
0 150
cfn=sim::now
calls=1 0
0 50
";

    #[test]
    fn cost_of_a_crate_and_its_callees_is_left_out_once() {
        assert_eq!(outside(DUMP, "sim::"), Some(1000 - 600 - 50));
        assert_eq!(outside(DUMP, "absent"), Some(1000));
    }

    #[test]
    fn files_whose_own_lines_cost_enough_are_listed() {
        let dump = "fl=/a/crates/one/src/x.rs\nfn=one::x\n1 100\nfi=/a/crates/two/src/y.rs\n7 20\n\
             cfn=std::z\ncalls=1 0\n8 500\nfe=/a/crates/one/src/x.rs\n2 3\nfl=/a/crates/sim/src/w.rs\n9 900\n\
             fl=/rustc/library/z.rs\nfn=std::z\n4 500\nfl=/a/crates/one/src/x.rs\nfn=sim::w\n5 800\n";
        assert_eq!(files(dump, "sim::", 20), ["one/src/x.rs", "two/src/y.rs"]);
        assert_eq!(files(dump, "sim::", 103), ["one/src/x.rs"]);
        assert!(files(dump, "sim::", 104).is_empty());
    }

    #[test]
    fn dump_without_a_sum_is_rejected() {
        assert_eq!(outside("fn=a\n0 5\n", "sim"), None);
        assert_eq!(outside("summary: 5\nfn=a\ncfn=sim\ncalls=1\nrubbish\n", "sim"), None);
    }
}
