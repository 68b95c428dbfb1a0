//! `select!`: tokio's macro, with our own random choices, which a simulation can repeat.

use super::current;
use annulus_kernel::Kernel;
use std::cell::Cell;
use std::hash::{BuildHasher, Hasher, RandomState};

/// Waits for several futures in one task and runs the branch of the first one that is ready. The
/// others are dropped.
///
/// The macro is [`tokio::select!`] with the same syntax: patterns, `if` conditions, `else`, and
/// `biased;`, which polls the branches in the written order. Without `biased;` the branch to poll
/// first is chosen at random. Under a simulated kernel the choices are derived from the
/// simulation's seed, unlike those of `tokio::select!`.
///
/// ```
/// use annulus::time::sleep;
/// use std::time::Duration;
///
/// # annulus::run(async {
/// let slow = annulus::spawn(async { sleep(Duration::from_secs(60)).await });
/// let late = annulus::select! {
///     _ = slow => false,
///     () = sleep(Duration::from_millis(1)) => true,
/// };
/// assert!(late);
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[macro_export]
macro_rules! select {
    () => {
        $crate::macro_support::tokio::select!()
    };
    (biased; $($branches:tt)*) => {
        $crate::macro_support::tokio::select!(biased; $($branches)*)
    };
    (else $($rest:tt)*) => {
        $crate::macro_support::tokio::select!(else $($rest)*)
    };
    // Calls an internal rule of tokio's macro, with our choice of the branch to poll first.
    // `BRANCHES` is a constant in tokio's expansion: the number of branches.
    ($($branches:tt)*) => {
        $crate::macro_support::tokio::select!(@{
            start={ $crate::macro_support::first_branch(BRANCHES) };
            ()
        } $($branches)*)
    };
}

/// Chooses which of `branches` branches to poll first.
#[doc(hidden)]
pub fn first_branch(branches: u32) -> u32 {
    thread_local! {
        /// Used by `select!` outside a runtime.
        static OUTSIDE: Choices = Choices::random();
    }
    let inside = current::with(|core| core.choices.below(branches));
    let chosen = inside.or_else(|| OUTSIDE.try_with(|choices| choices.below(branches)).ok());
    chosen.unwrap_or(0)
}

/// A generator of random choices.
pub(super) struct Choices(Cell<u64>);

impl Choices {
    /// Returns choices derived from the seed of a simulated kernel, or random ones on a real
    /// kernel.
    pub(super) fn of(kernel: &dyn Kernel) -> Self {
        kernel.runtime_seed().map_or_else(Self::random, |seed| Self(Cell::new(seed)))
    }

    fn random() -> Self {
        Self(Cell::new(RandomState::new().build_hasher().finish()))
    }

    /// Returns a random number below `limit`, which must not be zero (SplitMix64).
    fn below(&self, limit: u32) -> u32 {
        let state = self.0.get().wrapping_add(0x9E37_79B9_7F4A_7C15);
        self.0.set(state);
        let word = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (((word >> 32) * u64::from(limit)) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branches_are_chosen_about_equally_often() {
        let choices = Choices(Cell::new(7));
        let mut counts = [0; 5];
        (0..5000).for_each(|_| counts[choices.below(5) as usize] += 1);
        assert!(counts.iter().all(|count| (900..1100).contains(count)), "{counts:?}");
    }
}
