//! The compiler's errors for mistakes with threads and borrowed bytes: the expected texts consist
//! mostly of the messages of `annulus`. The test is in this package because trybuild builds the
//! dependencies of the package, and this one has few. `TRYBUILD=overwrite` rewrites the expected
//! texts.

use annulus_skip::skip;
use std::process::Command;

/// The compiler whose messages are stored beside each program. Other versions word them
/// differently.
const COMPILER: &str = "rustc 1.95.";

#[test]
#[ignore = "builds annulus for itself"]
fn mistakes_are_explained() {
    let rustc = std::env::var_os("RUSTC").unwrap_or("rustc".into());
    let version = Command::new(rustc).arg("--version").output().expect("rustc did not start");
    let version = String::from_utf8_lossy(&version.stdout);
    if !version.starts_with(COMPILER) {
        skip!("the texts are those of {COMPILER}x, and this is {version}");
        return;
    }
    trybuild::TestCases::new().compile_fail("tests/compiler_errors/*.rs");
}
