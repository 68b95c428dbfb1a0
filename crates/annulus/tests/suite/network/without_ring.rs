//! Hosts without io_uring: the same programs on the epoll driver.

use super::{SECOND, echo, ping};
use annulus::net::TcpStream;
use annulus::sim::{Disturbances, Network, Profile, Sim, find_failure};
use annulus::time::{sleep, timeout};
use annulus::{DriverChoice, Runtime};
use rustix::io::Errno;
use std::io;
use std::rc::Rc;

/// Runs a client on a disturbed network until it has twenty answers, however often its connection
/// breaks.
fn run(sim: &Rc<Sim>, choice: DriverChoice, seed: u64) -> io::Result<u64> {
    let network = Network::on(sim, seed, Runtime::builder().driver(choice));
    network.host("server", echo)?;
    network.client("client", async {
        let mut answers = 0;
        while answers < 20 {
            let connected = timeout(SECOND, TcpStream::connect("server:7")).await;
            let Ok(Ok(mut stream)) = connected else {
                sleep(SECOND / 10).await;
                continue;
            };
            while let Ok(Ok(_)) = timeout(SECOND, ping(&mut stream)).await {
                answers += 1;
                sleep(SECOND / 2).await;
            }
        }
        io::Result::Ok(())
    })?;
    network.disturb(Disturbances::default());
    network.run()?;
    assert_eq!(sim.leftovers(), [""; 0]);
    Ok(sim.trace_hash())
}

#[test]
fn programs_survive_disturbances_and_one_seed_is_one_run() {
    let failure = find_failure(0..20, |seed| {
        let refusing = Profile::current().refusing(Errno::NOSYS);
        let without = || Sim::builder(seed).profile(refusing.clone()).build();
        let hash = run(&without(), DriverChoice::Auto, seed)?;
        assert_eq!(hash, run(&without(), DriverChoice::Auto, seed)?, "two runs of one seed differ");
        let with = Sim::builder(seed).build();
        assert_eq!(
            hash,
            run(&with, DriverChoice::Epoll, seed)?,
            "a run depends on whether epoll is requested"
        );
        io::Result::Ok(())
    });
    assert_eq!(failure, None);
}
