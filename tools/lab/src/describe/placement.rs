//! Which cores servers and clients run on.

use serde::Deserialize;

use crate::cores::Cores;

/// Which cores servers and clients run on.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// Servers on one core, clients and the target of proxies on another.
    #[default]
    Apart,
    /// Servers and the target of proxies on one core, clients on another, so that the clients have
    /// more CPU time than the servers need.
    Together,
    /// All cores are shared. Threads run where the system puts them, or where a program pins its
    /// own.
    Shared,
}

impl Placement {
    /// Returns the core of the servers, if they have one.
    pub(crate) fn server(self, cores: Cores) -> Option<usize> {
        (self != Placement::Shared).then_some(cores.server)
    }

    /// Returns the core of the clients, if they have one.
    pub(crate) fn load(self, cores: Cores) -> Option<usize> {
        (self != Placement::Shared).then_some(cores.load)
    }

    /// Returns the core of the target of proxies, if it has one.
    pub(crate) fn target(self, cores: Cores) -> Option<usize> {
        match self {
            Placement::Apart => self.load(cores),
            Placement::Together | Placement::Shared => self.server(cores),
        }
    }

    /// Describes the placement for a report.
    pub(crate) fn terms(self, Cores { server, load, .. }: Cores) -> String {
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
        let cores = Cores::new(3, 5);
        let placed = |one: Placement| [one.server(cores), one.load(cores), one.target(cores)];
        assert_eq!(placed(Placement::Apart), [Some(3), Some(5), Some(5)]);
        assert_eq!(placed(Placement::Together), [Some(3), Some(5), Some(3)]);
        assert_eq!(placed(Placement::Shared), [None; 3]);
        assert_eq!(Placement::Apart.terms(cores), "servers on core 3, clients on core 5");
    }
}
