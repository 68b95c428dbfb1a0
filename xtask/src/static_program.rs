//! The command as one static program, which runs on any Linux: linked with musl, and tried.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use crate::step::{Failure, Outcome, Step, root, target};

/// The target of this machine's programs with musl.
fn musl() -> String {
    format!("{}-unknown-linux-musl", std::env::consts::ARCH)
}

/// Builds it as quickly as it can be built, or with `--dist` as it is published.
pub(crate) fn run(arguments: &[String]) -> Outcome {
    let profile = match arguments {
        [] => "dev",
        [word] if word == "--dist" => "dist",
        [other, ..] => {
            let text = format!("unexpected argument '{other}': static takes `--dist`, or none");
            return Err(Failure::Usage(text));
        }
    };
    if let Some(missing) = missing() {
        return Ok(vec![missing]);
    }
    let triple = musl();
    let build = format!("build --quiet -p annulus-cli --target {triple} --profile {profile}");
    Step::new("cargo", &build).run()?;
    let directory = if profile == "dev" { "debug" } else { profile };
    let program = target().join(triple).join(directory).join("annulus");
    echoes(&program)?;
    eprintln!("{}", program.display());
    Ok(Vec::new())
}

/// A requirement of the build that this machine lacks.
fn missing() -> Option<String> {
    let targets = Step::new("rustup", "target list --installed").probe().unwrap_or_default();
    let triple = musl();
    if !targets.lines().any(|line| line == triple) {
        return Some(format!("static (no target: `rustup target add {triple}`)"));
    }
    let compiler = Step::new("musl-gcc", "--version").probe();
    compiler.is_none().then(|| "static (no musl-gcc: `apt-get install musl-tools`)".into())
}

/// A server that is ended when it is dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// Runs it as a server and as the load on it, with each driver.
fn echoes(program: &Path) -> Result<(), Failure> {
    for driver in ["uring", "epoll"] {
        let (_server, address) = serve(program, driver)
            .map_err(|why| Failure::Failed(format!("{} echo: {why}", program.display())))?;
        let load = format!("load {address} -t 0.2 --warm-up 0 -c 4 --driver {driver}");
        Step::new(&program.display().to_string(), &load).run()?;
    }
    Ok(())
}

/// Starts it, and waits for its address.
fn serve(program: &Path, driver: &str) -> Result<(Server, String), String> {
    let mut command = Command::new(program);
    command.args(["echo", "--listen", "127.0.0.1:0", "--driver", driver]).current_dir(root());
    let child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut server = Server(child.map_err(|error| error.to_string())?);
    let mut output = BufReader::new(server.0.stderr.take().expect("stderr is a pipe"));
    let mut said = String::new();
    loop {
        let mut line = String::new();
        let length = output.read_line(&mut line).map_err(|error| error.to_string())?;
        if length == 0 {
            return Err(format!("it does not listen; it printed: {}", said.trim()));
        }
        if let Some(address) = address(&line) {
            // It must never wait for a reader.
            thread::spawn(move || output.read_to_end(&mut Vec::new()));
            return Ok((server, address));
        }
        said += &line;
    }
}

/// The address in the announcement of a server.
fn address(line: &str) -> Option<String> {
    let (_, after) = line.split_once("listening on ")?;
    after.split_whitespace().next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_follows_the_announcement() {
        let line = "annulus echo: listening on 127.0.0.1:4242 (uring)\n";
        assert_eq!(address(line).as_deref(), Some("127.0.0.1:4242"));
        assert_eq!(address("annulus: a note\n"), None);
    }
}
