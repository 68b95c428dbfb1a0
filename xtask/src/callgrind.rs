//! The counts of callgrind, without those of one crate.

/// Instructions of a run, without those between a call into the crate and its return.
///
/// `dump` is the file of callgrind, written with `--compress-strings=no --compress-pos=no`: the cost of a function follows
/// its `fn=`; after `cfn=` and `calls=` follows the cost of all its calls of another.
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

#[cfg(test)]
mod tests {
    use super::outside;

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
    fn what_a_crate_and_its_callees_cost_is_left_out_once() {
        assert_eq!(outside(DUMP, "sim::"), Some(1000 - 600 - 50));
        assert_eq!(outside(DUMP, "absent"), Some(1000));
    }

    #[test]
    fn a_dump_without_a_sum_is_none() {
        assert_eq!(outside("fn=a\n0 5\n", "sim"), None);
        assert_eq!(outside("summary: 5\nfn=a\ncfn=sim\ncalls=1\nrubbish\n", "sim"), None);
    }
}
