//! The progress line of a load on a terminal.

use crate::common::{ANNULUS, Server, try_finish};
use annulus_skip::skip;
use std::io::{Read, Write};
use std::process::{Command, Stdio};

/// What Ctrl-C sends.
const INTERRUPT: &[u8] = b"\x03";

#[test]
fn terminal_shows_progress_and_then_the_results() {
    if try_finish(Command::new("script").arg("--version")).is_err() {
        skip!("no script: apt-get install bsdutils");
        return;
    }
    let server = Server::start(&[]);
    // The test ends the load as soon as it has seen everything. The duration is a deadline.
    let options = "-c 2 -d 60 --warm-up 0 --interval 0.1";
    let load = format!("'{ANNULUS}' load {} {options}", server.address);
    // `script` gives the load a terminal for all of its output, including standard error.
    let mut script = Command::new("script");
    script.args(["-qec", &load, "/dev/null"]).env("TERM", "xterm");
    let mut script = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut stdin, mut stdout) = (script.stdin.take().unwrap(), script.stdout.take().unwrap());
    let mut shown = Vec::new();
    let text = |shown: &[u8]| String::from_utf8_lossy(shown).into_owned();
    let parts = ["p99 ", "failed 0", "s left"];
    while !parts.iter().all(|part| text(&shown).contains(part)) {
        let mut bytes = [0; 1024];
        let count = stdout.read(&mut bytes).unwrap();
        assert!(count > 0, "not all of {parts:?} are shown: {}", text(&shown));
        shown.extend(&bytes[..count]);
    }
    stdin.write_all(INTERRUPT).unwrap();
    stdout.read_to_end(&mut shown).unwrap();
    let shown = text(&shown);
    assert_eq!(script.wait().unwrap().code(), Some(130), "{shown}");
    // The progress line is removed, and the results follow.
    let (_, rest) = shown.rsplit_once(parts[2]).unwrap();
    assert!(rest.contains("requests/s") && rest.contains("errors"), "{rest}");
}
