//! A protocol that is an exchange and a connector.

use super::{Connector, Wire};
use crate::exchange::{Exchange, Protocol};
use crate::fault::Fault;

/// The protocol of the exchange that `make` returns for a client, over the connector's streams.
pub(crate) struct Codec<F> {
    connector: Connector,
    make: F,
}

impl<F> Codec<F> {
    pub(crate) fn new(connector: &Connector, make: F) -> Codec<F> {
        Codec { connector: connector.clone(), make }
    }
}

impl<X: Exchange + 'static, F: Fn(usize) -> X + 'static> Protocol for Codec<F> {
    type Transport = Wire;
    type Exchange = X;

    fn connect(&self, number: usize) -> impl Future<Output = Result<Wire, Fault>> {
        self.connector.connect(number)
    }

    fn exchange(&self, client: usize) -> X {
        (self.make)(client)
    }
}
