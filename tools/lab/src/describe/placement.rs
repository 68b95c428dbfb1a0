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
    /// Servers and what is behind a proxy on one core, clients on another: the clients have more time than the servers need.
    Together,
    /// All on all cores that this process may use: threads run where the system puts them, or where a program pins its own.
    Shared,
}

impl Placement {
    /// The core of the servers, if they have one.
    pub(crate) fn server(self, cores: Cores) -> Option<usize> {
        (self != Placement::Shared).then_some(cores.server)
    }

    /// The core of the clients, if they have one.
    pub(crate) fn load(self, cores: Cores) -> Option<usize> {
        (self != Placement::Shared).then_some(cores.load)
    }

    /// The core of what is behind a proxy, if it has one.
    pub(crate) fn target(self, cores: Cores) -> Option<usize> {
        match self {
            Placement::Apart => self.load(cores),
            Placement::Together | Placement::Shared => self.server(cores),
        }
    }

    /// The text of a report on the placement.
    pub(crate) fn terms(self, Cores { server, load }: Cores) -> String {
        match self {
            Placement::Apart => format!("servers on core {server}, clients on core {load}"),
            Placement::Together => {
                format!("servers and what is behind them on core {server}, clients on core {load}")
            }
            Placement::Shared => "servers and clients share all cores".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_placement_pins_nothing() {
        let cores = Cores { server: 3, load: 5 };
        let placed = |one: Placement| [one.server(cores), one.load(cores), one.target(cores)];
        assert_eq!(placed(Placement::Apart), [Some(3), Some(5), Some(5)]);
        assert_eq!(placed(Placement::Together), [Some(3), Some(5), Some(3)]);
        assert_eq!(placed(Placement::Shared), [None; 3]);
        assert_eq!(Placement::Apart.terms(cores), "servers on core 3, clients on core 5");
    }
}
