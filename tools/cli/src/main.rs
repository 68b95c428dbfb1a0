//! The annulus command.

use std::process::ExitCode;

fn main() -> ExitCode {
    annulus_cli::main()
}
