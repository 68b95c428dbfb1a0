//! Which driver, and why.

use annulus_ring::Features;
use std::fmt;
use std::str::FromStr;

/// Which driver a runtime is to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DriverChoice {
    /// io_uring where it works.
    #[default]
    Auto,
    /// io_uring or nothing.
    Uring,
}

impl DriverChoice {
    const ALL: [(&'static str, Self); 2] = [("auto", Self::Auto), ("uring", Self::Uring)];
}

impl FromStr for DriverChoice {
    type Err = UnknownDriver;

    fn from_str(text: &str) -> Result<Self, UnknownDriver> {
        let found = Self::ALL.into_iter().find(|(name, _)| *name == text);
        found.map(|(_, choice)| choice).ok_or_else(|| UnknownDriver(text.into()))
    }
}

impl fmt::Display for DriverChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.into_iter().find(|(_, choice)| choice == self).map(|(name, _)| name);
        f.write_str(name.unwrap_or_default())
    }
}

/// A driver of this name does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownDriver(String);

impl fmt::Display for UnknownDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = DriverChoice::ALL.iter().map(|(name, _)| *name).collect();
        write!(f, "unknown driver `{}`; choose one of {}", self.0, names.join(", "))
    }
}

impl std::error::Error for UnknownDriver {}

/// A driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverKind {
    /// io_uring.
    Uring,
}

impl fmt::Display for DriverKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Uring => "uring",
        })
    }
}

/// Which driver runs, and why.
#[derive(Clone, Debug)]
pub struct DriverInfo {
    /// The driver.
    pub kind: DriverKind,
    /// Why this one, in a few words.
    pub reason: String,
    /// What the kernel under it offers.
    pub features: Features,
}

impl fmt::Display for DriverInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.reason)
    }
}
