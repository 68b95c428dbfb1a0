//! The environments in which the tests run.

use annulus::net::{TcpListener, TcpStream};
use annulus::sim::{Fault, Faults, Link, Sim};
use annulus::time::timeout;
use annulus::{DriverChoice, Runtime};
use annulus_compat::rustls::TlsStream;
use std::error::Error;
use std::future::Future;
use std::io;
use std::time::Duration;

pub(crate) type Failure = Box<dyn Error + Send + Sync>;
pub(crate) type Outcome = Result<(), Failure>;
pub(crate) type Session = TlsStream<TcpStream>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum World {
    Uring,
    Epoll,
    Guest,
    /// A network with varying delays, on which receives often return fewer bytes than have arrived.
    Simulated,
}

impl World {
    pub(crate) const ALL: [Self; 4] = [Self::Uring, Self::Epoll, Self::Guest, Self::Simulated];

    pub(crate) fn run<F: Future<Output = Outcome>>(self, body: impl FnOnce(Self) -> F) {
        // An annulus timeout, so that it follows virtual time on the simulated kernel.
        let within =
            async { timeout(Duration::from_secs(120), body(self)).await.expect("the test hangs") };
        let ran = match self {
            Self::Uring => on(DriverChoice::Auto, within),
            Self::Epoll => on(DriverChoice::Epoll, within),
            Self::Guest => annulus_tokio::run(within).unwrap(),
            Self::Simulated => {
                let latency = Duration::from_millis(1);
                let link = Link { latency, jitter: latency, ..Link::default() };
                let faults = Faults::none().with(Fault::ShortRead, 300);
                let sim = Sim::builder(7).link(link).faults(faults).build();
                annulus::sim::run_on(&sim, Runtime::builder(), within)
            }
        };
        ran.unwrap_or_else(|error| panic!("{self:?}: {error}"));
    }

    pub(crate) fn listen(self) -> io::Result<TcpListener> {
        match self {
            Self::Simulated => TcpListener::bind("10.0.0.1:443"),
            _ => TcpListener::bind("127.0.0.1:0"),
        }
    }

    pub(crate) async fn pair(self) -> io::Result<(TcpStream, TcpStream)> {
        let listener = self.listen()?;
        let client = TcpStream::connect(listener.local_addr()?).await?;
        Ok((client, listener.accept().await?.0))
    }
}

fn on(driver: DriverChoice, body: impl Future<Output = Outcome>) -> Outcome {
    Runtime::builder().driver(driver).build().unwrap().block_on(body)
}

pub(crate) fn everywhere<F: Future<Output = Outcome>>(body: impl Fn(World) -> F) {
    for world in World::ALL {
        world.run(&body);
    }
}
