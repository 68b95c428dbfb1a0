//! Disturbances are added to the settings of a test, and restore those settings when they end.

use super::{SECOND, echo, ping};
use annulus::net::TcpStream;
use annulus::sim::{Disturbance, Disturbances, Link, Network};
use annulus::time::{sleep, timeout};
use std::cell::Cell;
use std::future::pending;
use std::io;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

/// Returns disturbances of these kinds.
fn often(kinds: &'static [Disturbance], pause: Duration, length: Duration) -> Disturbances {
    let about = |time: Duration| -> Range<Duration> { time..time + Duration::from_millis(1) };
    Disturbances { kinds, pause: about(pause), length: about(length) }
}

/// Runs a server and a client that disturbs it.
fn with_echo<F: Future<Output = io::Result<()>> + 'static>(
    client: impl FnOnce(Network) -> F,
) -> io::Result<()> {
    let network = Network::new(9);
    network.host("server", echo)?;
    network.client("client", client(network.clone()))?;
    network.run()
}

/// Returns how long the server takes to answer on a new connection, or `None` after an error or ten
/// seconds.
async fn asked() -> Option<Duration> {
    let ping = async { ping(&mut TcpStream::connect("server:7").await?).await };
    timeout(10 * SECOND, ping).await.ok()?.ok()
}

#[test]
fn a_link_setting_survives_disturbances() -> io::Result<()> {
    with_echo(async |network| {
        network.link("client", "server", Some(Link { latency: SECOND / 2, ..Link::default() }))?;
        network.disturb(often(&[Disturbance::Delay, Disturbance::Slow], SECOND / 50, SECOND / 10));
        sleep(5 * SECOND).await;
        let disturbed = asked().await.expect("no answer on the disturbed network");
        assert!(disturbed > SECOND, "{disturbed:?}");
        network.calm();
        sleep(SECOND).await;
        let took = asked().await.expect("no answer on the calm network");
        assert!((SECOND..SECOND + SECOND / 100).contains(&took), "{took:?}");
        network.link("client", "server", None)?;
        sleep(SECOND).await;
        assert!(asked().await.expect("no answer on the calm network") < SECOND / 1000);
        Ok(())
    })
}

#[test]
fn a_requested_partition_lasts_until_its_repair() -> io::Result<()> {
    with_echo(async |network| {
        network.partition("client", "server")?;
        network.disturb(often(&[Disturbance::Partition], SECOND / 2, SECOND / 10));
        sleep(5 * SECOND).await;
        assert_eq!(asked().await, None, "the end of a disturbance repaired the partition");
        network.calm();
        assert_eq!(asked().await, None, "calm repaired the partition");
        network.repair("client", "server")?;
        assert!(asked().await.is_some());
        Ok(())
    })
}

#[test]
fn overlapping_partitions_last_until_the_last_one_ends() -> io::Result<()> {
    with_echo(async |network| {
        network.disturb(often(&[Disturbance::Partition], SECOND / 1000, SECOND / 20));
        sleep(SECOND).await;
        assert_eq!(asked().await, None, "a partition ended before the next one began");
        network.calm();
        sleep(SECOND).await;
        assert!(asked().await.is_some());
        Ok(())
    })
}

/// Counts the starts of a host, and knows whether it runs.
struct Counted {
    starts: Cell<u32>,
    runs: Cell<bool>,
}

struct Running(Rc<Counted>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.runs.set(false);
    }
}

fn with_counted<F: Future<Output = io::Result<()>> + 'static>(
    client: impl FnOnce(Network, Rc<Counted>) -> F,
) -> io::Result<()> {
    let counted = Rc::new(Counted { starts: Cell::new(0), runs: Cell::new(false) });
    let network = Network::new(4);
    network.client("client", client(network.clone(), counted.clone()))?;
    network.host("server", move || {
        counted.starts.set(counted.starts.get() + 1);
        counted.runs.set(true);
        let running = Running(counted.clone());
        async move {
            let _running = running;
            pending::<io::Result<()>>().await
        }
    })?;
    network.run()
}

/// Disturbs the network with crashes of half a second, and waits for the first one.
async fn until_crash(network: &Network, server: &Counted) {
    network.disturb(often(&[Disturbance::Crash], SECOND, SECOND / 2));
    sleep(SECOND / 10).await;
    while server.runs.get() {
        sleep(SECOND / 100).await;
    }
}

#[test]
fn a_host_started_by_hand_is_not_restarted_after_a_crash() -> io::Result<()> {
    with_counted(async |network, server| {
        until_crash(&network, &server).await;
        network.bounce("server")?;
        sleep(SECOND * 4 / 5).await;
        assert_eq!((server.starts.get(), server.runs.get()), (2, true));
        Ok(())
    })
}

#[test]
fn a_host_crashed_by_hand_stays_down_when_calm() -> io::Result<()> {
    with_counted(async |network, server| {
        until_crash(&network, &server).await;
        network.crash("server")?;
        sleep(10 * SECOND).await;
        network.calm();
        sleep(SECOND).await;
        assert_eq!((server.starts.get(), server.runs.get()), (1, false));
        network.bounce("server")?;
        sleep(SECOND).await;
        assert!(server.runs.get());
        Ok(())
    })
}
