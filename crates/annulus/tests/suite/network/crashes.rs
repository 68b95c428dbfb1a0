//! What is in flight at a crash: data on its way to the device, datagrams, and the answers to
//! connects.

use super::{SECOND, echo, ping};
use annulus::Runtime;
use annulus::fs::File;
use annulus::net::{TcpStream, UdpSocket};
use annulus::sim::{Device, Disk, Link, Network, Sim};
use annulus::time::{Instant, sleep};
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;

#[test]
fn a_crash_delays_no_other_host_and_ends_calls_at_the_device() -> io::Result<()> {
    let slow = Device { sync: 3 * SECOND, ..Device::default() };
    let sim = Sim::builder(1).disk(Disk::new(slow)).build();
    let network = Network::on(&sim, 1, Runtime::builder());
    let synced = Rc::new(Cell::new(0));
    let count = synced.clone();
    network.host("server", move || {
        let count = count.clone();
        async move {
            let mut file = File::create("/journal").await?;
            file.write_all("entry").await.0?;
            file.sync_all().await?;
            count.set(count.get() + 1);
            io::Result::Ok(())
        }
    })?;
    let faults = network.clone();
    network.client("client", async move {
        sleep(SECOND).await;
        let start = Instant::now();
        faults.crash("server")?;
        sleep(SECOND / 100).await;
        assert!(start.elapsed() < SECOND / 90, "{:?} have passed", start.elapsed());
        sleep(5 * SECOND).await;
        assert_eq!(synced.get(), 0, "a sync completed on a host without power");
        faults.bounce("server")?;
        sleep(5 * SECOND).await;
        assert_eq!(synced.get(), 1);
        io::Result::Ok(())
    })?;
    network.run()?;
    assert_eq!((sim.open_descriptors(), sim.pending_operations()), (0, 0));
    Ok(())
}

/// Sends a datagram when it starts, and records the first byte of each datagram that arrives.
async fn exchange(client: std::net::IpAddr, arrived: Rc<RefCell<Vec<u8>>>) -> io::Result<()> {
    let socket = UdpSocket::bind("0.0.0.0:9")?;
    socket.send_to("start", (client, 9).into()).await?;
    loop {
        let (datagram, _) = socket.recv_from().await?;
        arrived.borrow_mut().push(datagram[0]);
    }
}

#[test]
fn datagrams_in_flight_are_lost_in_a_crash_in_both_directions() -> io::Result<()> {
    let sim = Sim::builder(1).link(Link { latency: SECOND, ..Link::default() }).build();
    let network = Network::on(&sim, 1, Runtime::builder());
    let arrived = Rc::new(RefCell::new(Vec::new()));
    let (faults, seen) = (network.clone(), arrived.clone());
    let client = network.client("client", async move {
        let server = faults.address("server")?;
        let socket = UdpSocket::bind("0.0.0.0:9")?;
        socket.send_to("1", (server, 9).into()).await?;
        sleep(SECOND / 2).await;
        // The datagram that the server sent when it started is halfway too.
        faults.bounce("server")?;
        sleep(SECOND / 10).await;
        let second = Instant::now();
        assert_eq!(&*socket.recv_from().await?.0, b"start");
        assert!(second.elapsed() > SECOND / 2, "the datagram of the first start arrived");
        sleep(2 * SECOND).await;
        assert_eq!(*seen.borrow(), b"");
        socket.send_to("2", (server, 9).into()).await?;
        sleep(2 * SECOND).await;
        assert_eq!(*seen.borrow(), b"2");
        io::Result::Ok(())
    })?;
    network.host("server", move || exchange(client, arrived.clone()))?;
    network.run()?;
    assert_eq!((sim.sockets(), sim.open_descriptors()), (0, 0));
    Ok(())
}

/// The answer is lost, so the client asks the host again after its restart.
#[test]
fn a_connect_that_a_crash_leaves_unanswered_is_repeated() -> io::Result<()> {
    let network = Network::new(4);
    network.host("server", echo)?;
    let faults = network.clone();
    network.client("client", async move {
        faults.link("client", "server", Some(Link { latency: SECOND, ..Link::default() }))?;
        sleep(SECOND).await;
        let start = Instant::now();
        let connecting = annulus::spawn(TcpStream::connect("server:7"));
        // The attempt has arrived, but its answer has not.
        sleep(3 * SECOND / 2).await;
        faults.crash("server")?;
        sleep(4 * SECOND).await;
        faults.bounce("server")?;
        let mut stream = connecting.await.unwrap()?;
        assert!((5 * SECOND..20 * SECOND).contains(&start.elapsed()), "{:?}", start.elapsed());
        ping(&mut stream).await?;
        io::Result::Ok(())
    })?;
    network.run()?;
    assert_eq!(network.sim().sockets(), 0);
    Ok(())
}
