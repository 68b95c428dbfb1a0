//! The values that replace the fields of templates.

use super::Mix;
use crate::random::{Purpose, generator};
use fastrand::Rng;

/// The values of the fields of one client's requests. Equal seeds give equal requests.
///
/// ```
/// use annulus_load::{Fill, Template};
///
/// let template: Template = "GET key:{n}".parse().unwrap();
/// // The second of three clients.
/// let mut fill = Fill::new(1, 1, 3);
/// let mut request = Vec::new();
/// for _ in 0..2 {
///     template.write(&mut fill, &mut request);
///     fill.next_request();
/// }
/// assert_eq!(request, b"GET key:1GET key:4");
/// ```
#[derive(Clone, Debug)]
pub struct Fill {
    client: u64,
    clients: u64,
    number: u64,
    pub(super) random: Rng,
}

impl Fill {
    /// The values of `client`, counted from 0, one of `clients`, in its first request.
    pub fn new(seed: u64, client: usize, clients: usize) -> Fill {
        let random = generator(seed, client, Purpose::Requests);
        Fill { client: client as u64, clients: clients as u64, number: client as u64, random }
    }

    /// Goes on to the next request.
    pub fn next_request(&mut self) {
        self.number = self.number.wrapping_add(self.clients);
    }

    /// The number of the client.
    pub fn client(&self) -> u64 {
        self.client
    }

    /// The number of the request: no other request of the run has it.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Draws a request of a mix; returns its index.
    pub fn draw<T>(&mut self, mix: &Mix<T>) -> usize {
        mix.draw(&mut self.random)
    }
}
