//! The command as one static program for any Linux: linked with musl, and tried.

use crate::step::{Outcome, Step, target};

/// Builds the program with the dev profile, or as it is published; then runs it as a server and as
/// its load, with each driver.
pub(crate) fn run(dist: bool) -> Outcome {
    let triple = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    let targets = Step::new("rustup", "target list --installed").probe().unwrap_or_default();
    if !targets.lines().any(|line| line == triple) {
        return Ok(vec![format!("static (no target: `rustup target add {triple}`)")]);
    }
    if Step::new("musl-gcc", "--version").probe().is_none() {
        return Ok(vec!["static (no musl-gcc: `apt-get install musl-tools`)".into()]);
    }
    let (profile, directory) = if dist { ("dist", "dist") } else { ("dev", "debug") };
    let build = format!("build --quiet -p annulus-cli --target {triple} --profile {profile}");
    Step::new("cargo", &build).run()?;
    let program = target().join(triple).join(directory).join("annulus");
    for driver in ["uring", "epoll"] {
        let echo = Step::new("sh", "xtask/src/kernels/echo.sh").argument(&program);
        echo.argument(driver).run()?;
    }
    eprintln!("{}", program.display());
    Ok(Vec::new())
}
