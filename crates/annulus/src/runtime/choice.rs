//! The choice of a driver, and the reason for it.

use super::blocked::Blocked;
use crate::UnknownName;
use crate::driver_kind::DriverKind;
use crate::name::named;
use annulus_driver::{Driver, Epoll, ReceiveArea, Uring, UringConfig};
use annulus_ring::{Feature, Features, SetupError};
use std::env;
use std::fmt;
use std::io;

/// The environment variable that overrides [`DriverChoice::Auto`].
const DRIVER_VARIABLE: &str = "ANNULUS_DRIVER";

/// io_uring features that the driver uses with any settings, if the kernel has them.
const BASE_FEATURES: [&str; 10] = [
    "fast poll",
    "wait timeout",
    "skipped completions",
    "multishot accept",
    "single issuer",
    "no index array",
    "honest iowait",
    "multishot receive",
    "receive limit",
    "deferred task work",
];

/// Additional features that the driver uses for zero-copy sends.
const ZERO_COPY_FEATURES: [&str; 3] = ["zero-copy send", "zero-copy sendmsg", "zero-copy report"];

/// Returns the features that a driver with these settings uses.
fn used(config: &UringConfig) -> Vec<&'static str> {
    let zero_copy: &[&str] = if config.zero_copy { &ZERO_COPY_FEATURES } else { &[] };
    let receive: &[&str] = match config.receive_area {
        Some(ReceiveArea { queue: Some(_), .. }) => &["zero-copy receive"],
        Some(_) => &["deviceless receive"],
        None => &[],
    };
    [&BASE_FEATURES, zero_copy, receive].concat()
}

/// The driver that a runtime uses.
///
/// By default a runtime uses epoll if io_uring is denied. A program that needs io_uring requests
/// it, and gets an error with the reason if io_uring is denied:
///
/// ```
/// use annulus::{DriverChoice, Runtime};
///
/// let choice: DriverChoice = "epoll".parse().unwrap(); // From a command line.
/// let mut runtime = Runtime::builder().driver(choice).build()?;
/// runtime.block_on(async { println!("no io_uring needed") });
/// if let Err(error) = Runtime::builder().driver(DriverChoice::Uring).build() {
///     println!("io_uring is denied: {error}");
/// }
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DriverChoice {
    /// io_uring if it works, otherwise epoll, unless the environment variable `ANNULUS_DRIVER` says
    /// otherwise.
    #[default]
    Auto,
    /// io_uring. Building the runtime fails if io_uring cannot be used.
    Uring,
    /// epoll. io_uring is not tried.
    Epoll,
}

named!(DriverChoice, "driver", {
    "auto" => Auto,
    "uring" => Uring,
    "epoll" => Epoll,
});

impl DriverChoice {
    /// Applies the environment variable. Returns the choice and the reason for it.
    fn decided(self) -> io::Result<(Self, &'static str)> {
        let (Self::Auto, Some(value)) = (self, env::var_os(DRIVER_VARIABLE)) else {
            return Ok((self, "as requested"));
        };
        let choice = value.to_string_lossy().parse().map_err(|unknown: UnknownName| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("{DRIVER_VARIABLE}: {unknown}"))
        })?;
        Ok((choice, "as set by ANNULUS_DRIVER"))
    }

    pub(super) fn open(self, config: UringConfig) -> io::Result<(Driver, DriverInfo)> {
        match self.on(&config)? {
            (Self::Uring, by) => {
                let is_real = config.kernel.real_descriptors();
                uring(config, by).map_err(|error| refusal(error, is_real))
            }
            (Self::Epoll, by) => epoll(config, by.into(), Features::default()),
            (Self::Auto, _) => open_best(config),
        }
    }

    /// Like [`decided`](Self::decided), but ignores the environment variable under a simulated
    /// kernel.
    fn on(self, config: &UringConfig) -> io::Result<(Self, &'static str)> {
        if config.kernel.real_descriptors() { self.decided() } else { Ok((self, "as requested")) }
    }
}

/// Returns the error for an io_uring that cannot be set up. On a real kernel, its text includes the
/// cause and a remedy.
fn refusal(error: SetupError, is_real: bool) -> io::Error {
    if is_real { Blocked::new(error).into() } else { error.into() }
}

/// The driver in use, and why.
///
/// ```
/// let runtime = annulus::Runtime::new()?;
/// let driver = runtime.driver();
/// println!("{driver}"); // Such as: uring: io_uring works here
/// for feature in driver.missing() {
///     println!("a newer kernel would have: {}", feature.name);
/// }
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug)]
pub struct DriverInfo {
    /// The driver that the runtime uses.
    pub kind: DriverKind,
    /// The reason for the choice, in a few words.
    pub reason: String,
    /// The features of the kernel's io_uring. Empty if they could not be detected or io_uring was
    /// not tried.
    pub features: Features,
    used: Vec<&'static str>,
}

impl DriverInfo {
    /// Returns the io_uring features in use. Empty on the epoll driver.
    pub fn in_use(&self) -> impl Iterator<Item = &Feature> {
        let on_uring = self.kind == DriverKind::Uring;
        self.called_for().filter(move |feature| on_uring && feature.present)
    }

    /// Returns the features that would be in use if the kernel had them.
    pub fn missing(&self) -> impl Iterator<Item = &Feature> {
        self.called_for().filter(|feature| !feature.present)
    }

    fn called_for(&self) -> impl Iterator<Item = &Feature> {
        self.features.iter().filter(|feature| self.used.contains(&feature.name))
    }
}

impl fmt::Display for DriverInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.reason)
    }
}

/// Opens io_uring, or epoll if io_uring cannot be set up.
fn open_best(config: UringConfig) -> io::Result<(Driver, DriverInfo)> {
    match uring(config.clone(), "io_uring works here") {
        Ok(opened) => Ok(opened),
        // An invalid setting is an error, not a reason to use epoll.
        Err(error @ SetupError::Size { .. }) => Err(error.into()),
        Err(error) => {
            let features = Features::detect_on(config.kernel.clone()).unwrap_or_default();
            if !config.kernel.real_descriptors() {
                return epoll(config, error.to_string(), features);
            }
            let reason = Blocked::new(error).reason();
            log_once(&reason);
            epoll(config, reason, features)
        }
    }
}

/// Logs once per process that io_uring is not in use. Does nothing without the feature `tracing`.
fn log_once(reason: &str) {
    #[cfg(feature = "tracing")]
    {
        static LOGGED: std::sync::Once = std::sync::Once::new();
        LOGGED.call_once(|| tracing::warn!(reason, "io_uring is blocked; running on epoll"));
    }
    _ = reason;
}

/// Returns a setting that only io_uring supports, if one was given.
fn uring_only_setting(config: &UringConfig) -> Option<String> {
    let waits = [
        ("busy_poll", config.busy_poll),
        ("napi_busy_poll", config.napi_busy_poll),
        ("min_wait", config.min_wait),
    ];
    let wait = waits.into_iter().find(|(_, wait)| !wait.is_zero());
    let wait = wait.map(|(name, wait)| format!("{name} of {wait:?}"));
    let others = [
        ("zero_copy_threshold", config.zero_copy),
        ("zero_copy_receive", config.receive_area.is_some()),
    ];
    others.into_iter().find(|(_, is_set)| *is_set).map(|(name, _)| name.to_owned()).or(wait)
}

fn uring(config: UringConfig, reason: &str) -> Result<(Driver, DriverInfo), SetupError> {
    let used = used(&config);
    let uring = Uring::new(config)?;
    let features = uring.features().clone();
    let info = DriverInfo { kind: DriverKind::Uring, reason: reason.into(), features, used };
    Ok((Driver::Uring(Box::new(uring)), info))
}

fn epoll(
    config: UringConfig,
    reason: String,
    features: Features,
) -> io::Result<(Driver, DriverInfo)> {
    if let Some(setting) = uring_only_setting(&config) {
        let text = format!(
            "{setting} needs io_uring, but the driver is epoll ({reason}); remove this setting"
        );
        return Err(io::Error::new(io::ErrorKind::Unsupported, text));
    }
    let used = used(&config);
    let epoll = Epoll::new(config.kernel, config.pool)?;
    let info = DriverInfo { kind: DriverKind::Epoll, reason, features, used };
    Ok((Driver::Epoll(Box::new(epoll)), info))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn used_feature_names_exist() {
        // If io_uring is blocked, there is nothing to compare with.
        let Ok(features) = Features::detect() else { return };
        for name in used(&UringConfig::default()) {
            assert!(features.iter().any(|feature| feature.name == name), "no feature `{name}`");
        }
    }
}
