//! The compiler's errors for mistakes with threads and borrowed bytes: the expected texts consist
//! mostly of the messages of `annulus`. The test is in this package because trybuild builds the
//! dependencies of the package, and this one has few. `TRYBUILD=overwrite` rewrites the expected
//! texts.
//!
//! Rust 1.95 does not allow more in two cases:
//! - `file.read(buffer).await?` gets the text of the standard library's `Try`. Only the trait that
//!   is missing can have `#[diagnostic::on_unimplemented]`; on a struct that replaces the tuple,
//!   the compiler ignores it. The tuple at least shows both parts. `annulus::fs` and the guide
//!   "Coming from tokio" say how to write the call.
//! - If an argument of an `async fn` does not meet its bound, the compiler reports the argument,
//!   the call and the `await`. It reports only the argument if the function returns a type that is
//!   a `Future` without the bound, which an `async fn` cannot do.

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
