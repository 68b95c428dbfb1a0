//! The messages of clients: weighted mixes of requests, and request templates.

mod template;

pub use template::Template;

use crate::invalid::{InvalidValue, invalid};
use crate::random::{Purpose, generator};
use fastrand::Rng;

/// The maximum length of a message on a stream: 64 MiB.
pub const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// The values of the fields in one client's requests. Equal seeds give equal requests.
///
/// ```
/// use annulus_load::{FieldValues, Template};
///
/// let template: Template = "GET key:{n}".parse().unwrap();
/// // The second of three clients.
/// let mut values = FieldValues::new(1, 1, 3);
/// let mut request = Vec::new();
/// for _ in 0..2 {
///     template.write(&mut values, &mut request);
///     values.next_request();
/// }
/// assert_eq!(request, b"GET key:1GET key:4");
/// ```
#[derive(Clone, Debug)]
pub struct FieldValues {
    client: u64,
    clients: u64,
    number: u64,
    random: Rng,
}

impl FieldValues {
    /// Creates the values for the first request of `client`, which counts from 0, out of `clients`.
    pub fn new(seed: u64, client: usize, clients: usize) -> FieldValues {
        let random = generator(seed, client, Purpose::Requests);
        FieldValues {
            client: client as u64,
            clients: clients as u64,
            number: client as u64,
            random,
        }
    }

    /// Advances to the next request.
    pub fn next_request(&mut self) {
        self.number = self.number.wrapping_add(self.clients);
    }

    /// Returns the number of the client.
    pub fn client(&self) -> u64 {
        self.client
    }

    /// Returns the number of the request, which is unique in the run.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Draws a request from a mix, and returns its index.
    pub fn draw<T>(&mut self, mix: &Mix<T>) -> usize {
        mix.draw(&mut self.random)
    }
}

/// A weighted mix: an entry with twice the weight is drawn twice as often.
///
/// ```
/// use annulus_load::{FieldValues, Mix};
///
/// let mix = Mix::parse(&["9* GET /index.html", "GET /about.html"]).unwrap();
/// assert_eq!(mix.entries(), ["GET /index.html", "GET /about.html"]);
/// let mut values = FieldValues::new(1, 0, 1);
/// let first = (0..1000).filter(|_| values.draw(&mix) == 0).count();
/// assert!((850..950).contains(&first), "{first} of 1000 are the first");
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Mix<T> {
    entries: Vec<T>,
    /// The sum of the weights up to and including each entry.
    sums: Vec<f64>,
}

impl<T> Mix<T> {
    /// Creates a mix from entries and their weights.
    ///
    /// # Errors
    /// Fails if there are no entries, or if a weight is not positive and finite.
    pub fn new(weighted: impl IntoIterator<Item = (f64, T)>) -> Result<Mix<T>, InvalidValue> {
        let (mut entries, mut sums, mut sum) = (Vec::new(), Vec::new(), 0.0);
        for (weight, entry) in weighted {
            if !(weight > 0.0 && weight.is_finite()) {
                let text = format!(
                    "the weight {weight} is invalid: use a number above 0, such as 3*REQUEST"
                );
                return Err(invalid(text));
            }
            sum += weight;
            sums.push(sum);
            entries.push(entry);
        }
        match entries.is_empty() {
            true => Err(invalid("there are no requests: give at least one")),
            false => Ok(Mix { entries, sums }),
        }
    }

    /// Returns the entries, in order.
    pub fn entries(&self) -> &[T] {
        &self.entries
    }

    /// Returns the share of each entry, in order. The shares add up to 1.
    pub fn shares(&self) -> impl Iterator<Item = f64> {
        let (total, mut before) = (self.total(), 0.0);
        self.sums.iter().map(move |sum| (sum - std::mem::replace(&mut before, *sum)) / total)
    }

    /// Creates a mix with the same weights from the results of `change`.
    ///
    /// # Errors
    /// Returns the first error of `change`.
    pub fn try_map<U, E>(self, change: impl FnMut(T) -> Result<U, E>) -> Result<Mix<U>, E> {
        let entries = self.entries.into_iter().map(change).collect::<Result<_, _>>()?;
        Ok(Mix { entries, sums: self.sums })
    }

    fn total(&self) -> f64 {
        self.sums.last().copied().unwrap_or_default()
    }

    /// Draws an entry, and returns its index.
    fn draw(&self, random: &mut Rng) -> usize {
        if self.sums.len() < 2 {
            return 0;
        }
        let at = random.f64() * self.total();
        self.sums.partition_point(|&sum| sum <= at).min(self.sums.len() - 1)
    }
}

impl Mix<String> {
    /// Parses texts that may start with a weight: `3*TEXT`. The default weight is 1.
    ///
    /// # Errors
    /// Fails if there are no texts, or if a weight is zero.
    pub fn parse(texts: &[impl AsRef<str>]) -> Result<Mix<String>, InvalidValue> {
        Mix::new(texts.iter().map(|text| {
            let (weight, text) = split_weight(text.as_ref());
            (weight, text.to_owned())
        }))
    }
}

/// Splits `3*TEXT` into the weight and the rest. A text that does not start with a number and an
/// asterisk has the weight 1.
fn split_weight(text: &str) -> (f64, &str) {
    let Some((number, rest)) = text.split_once('*') else { return (1.0, text) };
    let is_weight = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    match number.parse() {
        Ok(weight) if is_weight => (weight, rest.trim_start()),
        _ => (1.0, text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn mix_parses_weights() {
        let mix = Mix::parse(&["90* GET a", "10*GET b", "*1\r\n", "SET a*b"]).unwrap();
        assert_eq!(mix.entries(), ["GET a", "GET b", "*1\r\n", "SET a*b"]);
        let shares: Vec<_> = mix.shares().map(|share| (share * 102.0).round()).collect();
        assert_eq!(shares, [90.0, 10.0, 1.0, 1.0]);
        let error = Mix::parse(&["0*GET"]).unwrap_err().to_string();
        assert!(error.starts_with("the weight 0 is invalid: use a number above 0"), "{error}");
        assert!(Mix::<String>::parse(&[""; 0]).is_err());
        assert!(Mix::new([(f64::NAN, ())]).is_err() && Mix::new([(f64::INFINITY, ())]).is_err());
    }

    proptest! {
        #[test]
        fn entries_are_drawn_in_proportion_to_their_weights(
            weights in proptest::collection::vec(0.1_f64..10.0, 1..6),
            seed: u64,
        ) {
            let mix = Mix::new(weights.iter().map(|&weight| (weight, ()))).unwrap();
            let mut random = fastrand::Rng::with_seed(seed);
            let mut counts = vec![0.0; weights.len()];
            (0..4000).for_each(|_| counts[mix.draw(&mut random)] += 1.0);
            for (count, share) in counts.iter().zip(mix.shares()) {
                // Six standard deviations.
                let deviation = (4000.0 * share * (1.0 - share)).sqrt();
                prop_assert!((count - 4000.0 * share).abs() <= 6.0 * deviation + 1.0);
            }
        }
    }
}
