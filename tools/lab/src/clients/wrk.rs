//! The script of `wrk`, for HTTP/1.1, that pipelines requests and prints its numbers.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// Writes the script for so many requests at once; its path.
pub(super) fn write_script(depth: u64, directory: &Path) -> io::Result<PathBuf> {
    let path = directory.join(format!("{depth}.lua"));
    fs::write(&path, script(depth))?;
    Ok(path)
}

/// Prints the numbers at the end.
const DONE: &str = "\
done = function(summary, latency)
  local e = summary.errors
  io.write(string.format('measured %d %d %f %d %d %d %d %d\\n',
    summary.requests, summary.duration, latency.mean, latency:percentile(50), latency:percentile(99),
    latency:percentile(99.9), e.connect + e.read + e.write + e.timeout, e.status))
end
";

/// Sends `depth` requests at once.
fn script(depth: u64) -> String {
    let pipelined = format!(
        "init = function(args)\n  all = string.rep(wrk.format(), {depth})\nend\nrequest = function() return all end\n"
    );
    if depth > 1 { pipelined + DONE } else { DONE.to_owned() }
}
