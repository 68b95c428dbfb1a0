//! The progress line of a load on a terminal.

use crate::common::{ANNULUS, Server, finish, try_finish};
use std::io::{self, Write};
use std::process::Command;

#[test]
fn terminal_shows_progress_and_then_the_results() {
    if try_finish(Command::new("script").arg("--version")).is_err() {
        let text = "skipped: terminal_shows_progress_and_then_the_results: no script (Debian: apt-get install bsdutils)";
        _ = writeln!(io::stderr(), "{text}");
        return;
    }
    let server = Server::start(&[]);
    let options = "-c 2 -d 2 --warm-up 0 --interval 0.1";
    let parts = ["p99 ", "failed 0", "s left"];
    let load = format!("'{ANNULUS}' load -a {} {options}", server.address);
    // `script` gives the load a terminal for all of its output, including standard error.
    let shown =
        finish(Command::new("script").args(["-qec", &load, "/dev/null"]).env("TERM", "xterm"));
    assert_eq!(shown.code, Some(0), "{shown:?}");
    for part in parts {
        assert!(shown.stdout.contains(part), "{part:?} is not shown: {shown:?}");
    }
    // The progress line is removed, and the results follow.
    let (_, rest) = shown.stdout.rsplit_once(parts[2]).unwrap();
    assert!(rest.contains("requests/s") && rest.contains("errors"), "{rest}");
}
