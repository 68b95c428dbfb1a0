//! Which cores servers and clients run on.

use serde::Deserialize;

use crate::cores::Cores;

/// Which cores servers and clients run on.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// Servers on one core, clients on another.
    #[default]
    Apart,
    /// Both on all cores that this process may use: threads run where the system puts them, or where a program pins its own.
    Shared,
}

impl Placement {
    /// The core of the servers, if they have one.
    pub(super) fn server(self, cores: Cores) -> Option<usize> {
        (self == Placement::Apart).then_some(cores.server)
    }

    /// The core of the clients, and of what is behind a proxy, if they have one.
    pub(super) fn load(self, cores: Cores) -> Option<usize> {
        (self == Placement::Apart).then_some(cores.load)
    }

    /// What a report says of it.
    pub(super) fn terms(self, Cores { server, load }: Cores) -> String {
        match self {
            Placement::Apart => format!("servers on core {server}, clients on core {load}"),
            Placement::Shared => "servers and clients share all cores".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_apart_is_pinned() {
        let cores = Cores { server: 3, load: 5 };
        let [apart, shared] = [Placement::Apart, Placement::Shared];
        assert_eq!((apart.server(cores), apart.load(cores)), (Some(3), Some(5)));
        assert_eq!((shared.server(cores), shared.load(cores)), (None, None));
        assert_eq!(apart.terms(cores), "servers on core 3, clients on core 5");
    }
}
