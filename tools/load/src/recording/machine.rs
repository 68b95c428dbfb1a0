//! The machine that a run was made on.

use serde::{Deserialize, Serialize};
use std::fs;

/// The machine that a run was made on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// The name of the machine.
    pub host: String,
    /// The release of its kernel, such as `6.12.0`.
    pub kernel: String,
    /// The identity of this start of its kernel; empty if unknown.
    pub boot: String,
}

impl Machine {
    /// This machine.
    pub fn this() -> Machine {
        let system = rustix::system::uname();
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Machine {
            host: system.nodename().to_string_lossy().into_owned(),
            kernel: system.release().to_string_lossy().into_owned(),
            boot: boot.trim().to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_kernel_and_its_own_clock() {
        let this = Machine::this();
        assert!(this.kernel.contains('.'), "{this:?}");
        assert_eq!(this, Machine::this());
    }
}
