//! Standard input and output, in a child process that runs this test program again.

use annulus::fs::File;
use annulus::io::{AsyncRecv, AsyncSend, stderr, stdin, stdout};
use annulus::task::yield_now;
use annulus::{DriverChoice, Runtime};
use std::io::Write;
use std::process::Stdio;

const CHILD: &str = "ANNULUS_TEST_STDIO";

/// Prints each line of the input with its number, while waits are dropped all the time.
fn child(driver: DriverChoice) {
    let mut runtime = Runtime::builder().driver(driver).build().unwrap();
    let echo = async {
        let (mut input, mut output, mut errors) = (stdin()?, stdout()?, stderr()?);
        let mut number = 0;
        loop {
            let mut line = String::new();
            tokio::select! {
                read = input.read_line(&mut line, 100) => if read? == 0 { break },
                () = yield_now() => continue,
            };
            number += 1;
            let line = line.trim_end();
            output.write_all(format!("<{number} {line}>").as_bytes()).await?;
        }
        errors.write_all(format!("[{number} lines]").as_bytes()).await
    };
    runtime.block_on(echo).unwrap();
}

#[test]
fn lines_pass_standard_input_and_output() {
    match std::env::var(CHILD).as_deref() {
        Ok("epoll") => return child(DriverChoice::Epoll),
        Ok(_) => return child(DriverChoice::Auto),
        Err(_) => {}
    }
    let name = "stdio::lines_pass_standard_input_and_output";
    let start = |driver: &str| {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args([name, "--exact", "--nocapture"]).env(CHILD, driver);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    for driver in ["epoll", "auto"] {
        let mut child = start(driver);
        let mut input = child.stdin.take().unwrap();
        (0..300).for_each(|line| writeln!(input, "line {line}").unwrap());
        drop(input);
        let output = child.wait_with_output().unwrap();
        let (text, errors) = (output.stdout, output.stderr);
        let (text, errors) = (String::from_utf8(text).unwrap(), String::from_utf8(errors).unwrap());
        let expected: String = (0..300).map(|line| format!("<{} line {line}>", line + 1)).collect();
        assert!(output.status.success() && text.contains(&expected), "{driver}: {text}\n{errors}");
        assert!(errors.contains("[300 lines]"), "{errors}");
    }
}

/// Other processes move the cursors too, so a copy must not write at offsets as it does between
/// other files.
#[test]
fn a_copy_of_standard_streams_uses_their_shared_cursors() {
    Runtime::new()
        .unwrap()
        .block_on(async {
            assert!(AsyncRecv::own_file(&mut stdin()?).is_none());
            assert!(AsyncSend::own_file(&mut stdout()?).is_none());
            assert!(AsyncSend::own_file(&mut stderr()?).is_none());
            let mut other = File::open("/proc/self/exe").await?.into_stream();
            assert!(AsyncRecv::own_file(&mut other).is_some());
            std::io::Result::Ok(())
        })
        .unwrap();
}
