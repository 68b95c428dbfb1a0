//! The messages of clients: weighted mixes of requests, and request templates.

mod cookies;
mod data;
mod template;

pub(crate) use cookies::Cookies;
pub use data::DataRows;
pub use template::Template;

use crate::invalid::{InvalidValue, invalid};
use crate::random::{Purpose, generator};
use fastrand::Rng;
use std::sync::Arc;

/// The maximum length of a message on a stream: 64 MiB.
pub const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// The values of the fields in one client's requests. Equal seeds give equal requests, unless these
/// have the field `{client-id}`.
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
    /// A random number above 0, whatever the seed.
    id: u64,
    number: u64,
    random: Rng,
    data: Option<Arc<DataRows>>,
    /// Index of the data row that the current request uses.
    row: u64,
    /// Index of the next request of the session.
    step: usize,
    sessions: u64,
    cookies: Cookies,
}

impl FieldValues {
    /// Creates the values for the first request of one of `clients` clients. `client` is its index,
    /// from 0.
    pub fn new(seed: u64, client: usize, clients: usize) -> FieldValues {
        let random = generator(seed, client, Purpose::Requests);
        FieldValues {
            client: client as u64,
            clients: clients as u64,
            id: fastrand::u64(1..),
            number: client as u64,
            random,
            data: None,
            row: client as u64,
            step: 0,
            sessions: 0,
            cookies: Cookies::default(),
        }
    }

    /// Sets the rows of data. A field with the name of a column is replaced with the column's
    /// value.
    pub fn with_data(self, data: Option<Arc<DataRows>>) -> FieldValues {
        FieldValues { data, ..self }
    }

    /// Calls `check` with the values of a request: for each row of the data if the request uses the
    /// data, and otherwise once. All other values are those of the first request of a run.
    ///
    /// # Errors
    /// Returns the first error of `check`, with the number of the row.
    pub(crate) fn check_each_row(
        data: Option<&Arc<DataRows>>,
        uses_data: bool,
        mut check: impl FnMut(&mut FieldValues) -> Result<(), InvalidValue>,
    ) -> Result<(), InvalidValue> {
        let first = FieldValues::new(0, 0, 1).with_data(data.cloned());
        let rows = data.filter(|_| uses_data).map_or(1, |data| data.len());
        (0..rows as u64).try_for_each(|row| {
            let mut values = FieldValues { row, ..first.clone() };
            check(&mut values).map_err(|error| match uses_data {
                true => invalid(format!("with row {} of the data, {error}", row + 1)),
                false => error,
            })
        })
    }

    /// Advances to the next request.
    pub fn next_request(&mut self) {
        self.number = self.number.wrapping_add(self.clients);
    }

    /// Returns the number of the client, from 0.
    pub fn client(&self) -> u64 {
        self.client
    }

    /// Returns the number of the request, which is unique in the run.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the number of the request among the client's requests, from 1.
    pub(crate) fn number_of_client(&self) -> u64 {
        self.number / self.clients.max(1) + 1
    }

    /// Draws a request from a mix, or takes the next one in order, and returns its index.
    pub fn draw<T>(&mut self, mix: &Mix<T>) -> usize {
        if !mix.is_in_order {
            self.row = self.number;
            return mix.draw(&mut self.random);
        }
        let step = self.step;
        if step == 0 {
            // A number for each session. Modulo the number of rows, it selects a row.
            self.row = self.client.wrapping_add(self.sessions.wrapping_mul(self.clients));
            self.sessions += 1;
            self.cookies.clear();
        }
        self.step = (step + 1) % mix.entries.len();
        step
    }

    /// Goes back by this number of requests of a session, because they were not answered.
    pub(crate) fn repeat<T>(&mut self, mix: &Mix<T>, requests: usize) {
        let length = mix.entries.len();
        if mix.is_in_order && requests > 0 {
            self.step = (self.step + length - requests % length) % length;
            // The first step begins the same session again.
            self.sessions = self.sessions.saturating_sub(u64::from(self.step == 0));
        }
    }

    pub(crate) fn cookies(&mut self) -> &mut Cookies {
        &mut self.cookies
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
    /// Whether each client takes the entries in order, instead of drawing them.
    is_in_order: bool,
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
            false => Ok(Mix { entries, sums, is_in_order: false }),
        }
    }

    /// Creates a session: each client takes the entries in order, and then begins again.
    ///
    /// ```
    /// use annulus_load::{FieldValues, Mix};
    ///
    /// let mix = Mix::in_order(["POST /login", "GET /cart"]).unwrap();
    /// let mut values = FieldValues::new(1, 0, 1);
    /// assert_eq!([(); 3].map(|()| values.draw(&mix)), [0, 1, 0]);
    /// ```
    ///
    /// # Errors
    /// Fails if there are no entries.
    pub fn in_order(entries: impl IntoIterator<Item = T>) -> Result<Mix<T>, InvalidValue> {
        let mix = Mix::new(entries.into_iter().map(|entry| (1.0, entry)))?;
        Ok(Mix { is_in_order: true, ..mix })
    }

    /// Returns true if each client takes the entries in order, instead of drawing them.
    pub fn is_in_order(&self) -> bool {
        self.is_in_order
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

    /// Applies `change` to each entry, and keeps the weights and the order.
    ///
    /// # Errors
    /// Returns the first error that `change` returns.
    pub fn try_map<U, E>(self, change: impl FnMut(T) -> Result<U, E>) -> Result<Mix<U>, E> {
        let entries = self.entries.into_iter().map(change).collect::<Result<_, _>>()?;
        Ok(Mix { entries, sums: self.sums, is_in_order: self.is_in_order })
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
pub(crate) fn split_weight(text: &str) -> (f64, &str) {
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

    #[test]
    fn sessions_of_all_clients_use_different_rows() {
        let rows = DataRows::parse(b"user\na\nb\nc\nd\ne\n").unwrap();
        let (rows, mix) = (Arc::new(rows), Mix::in_order([(), ()]).unwrap());
        let mut clients =
            [0, 1].map(|client| FieldValues::new(1, client, 2).with_data(Some(Arc::clone(&rows))));
        let template = Template::parse_with_data("{user}", Some(&rows)).unwrap();
        let mut next = |client: usize| {
            let (values, mut out) = (&mut clients[client], Vec::new());
            let step = values.draw(&mix);
            template.write(values, &mut out);
            values.next_request();
            (step, String::from_utf8(out).unwrap())
        };
        let [first, second] = [0, 1].map(|client| [(); 4].map(|()| next(client)));
        let expected = |users: [&str; 2]| {
            [(0, users[0]), (1, users[0]), (0, users[1]), (1, users[1])]
                .map(|(step, user)| (step, user.to_owned()))
        };
        assert_eq!((first, second), (expected(["a", "c"]), expected(["b", "d"])));
    }

    #[test]
    fn unanswered_request_of_a_session_is_repeated() {
        let mix = Mix::in_order([(), (), ()]).unwrap();
        let mut values = FieldValues::new(1, 0, 1);
        values.cookies().begin_request(b"h", b"/");
        values.cookies().set(b"a=b");
        assert_eq!([(); 2].map(|()| values.draw(&mix)), [0, 1]);
        values.repeat(&mix, 1);
        values.cookies().set(b"a=c");
        assert_eq!([(); 2].map(|()| values.draw(&mix)), [1, 2]);
        assert_eq!((values.row, values.cookies().value()), (0, b"a=c".to_vec()));
        assert_eq!((values.draw(&mix), values.row, values.cookies().value()), (0, 1, Vec::new()));
        values.repeat(&mix, 1);
        assert_eq!((values.draw(&mix), values.row), (0, 1));
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
                // Allow six standard deviations.
                let deviation = (4000.0 * share * (1.0 - share)).sqrt();
                prop_assert!((count - 4000.0 * share).abs() <= 6.0 * deviation + 1.0);
            }
        }
    }
}
