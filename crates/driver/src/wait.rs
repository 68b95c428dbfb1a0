use std::time::Duration;

/// How long a turn may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all.
    No,
    /// Until something happens or the time is up; `None` means no limit.
    UpTo(Option<Duration>),
    /// Until something happens or the kernel's clock ([`Kernel::now`](annulus_kernel::Kernel::now))
    /// reaches this time.
    Until(Duration),
}
