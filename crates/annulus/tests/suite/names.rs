//! Host names, which the test's own resolver looks up off the loop.

use crate::common;

use annulus::net::{ConnectOptions, TcpListener, TcpStream, UdpSocket, lookup_host};
use annulus::task::yield_now;
use annulus::time::timeout;
use annulus::{Builder, Runtime, sim, spawn};
use common::{receive, run, run_on, touch};
use std::cell::Cell;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::Duration;

const SOON: Duration = Duration::from_millis(5);
/// The addresses of a name that has two. No other test listens on them.
const TWO: [Ipv4Addr; 2] = [Ipv4Addr::new(127, 0, 0, 9), Ipv4Addr::new(127, 0, 0, 10)];

/// A resolver that knows some names, and records which names it was asked for and on which thread.
#[derive(Clone, Default)]
struct Hosts {
    asked: Arc<Mutex<Vec<(String, ThreadId)>>>,
}

impl Hosts {
    fn builder(&self) -> Builder {
        let asked = self.asked.clone();
        Runtime::builder().resolver(move |name| {
            asked.lock().unwrap().push((name.into(), thread::current().id()));
            match name {
                "here" => Ok(vec![Ipv4Addr::LOCALHOST.into()]),
                // The first address refuses the connection. The second accepts it.
                "two" => Ok(TWO.map(IpAddr::from).into()),
                "none" => Ok(Vec::new()),
                "panics" => std::panic::resume_unwind(Box::new("on purpose")),
                _ => Err(io::Error::new(io::ErrorKind::NotFound, "no such host")),
            }
        })
    }
}

/// A resolver that answers nothing until the sender is dropped.
fn silent() -> (Sender<()>, Builder) {
    let (leave, left) = channel::<()>();
    let left = Mutex::new(left);
    let builder = Runtime::builder().resolver(move |_| {
        _ = left.lock().unwrap().recv();
        Ok(vec![Ipv4Addr::LOCALHOST.into()])
    });
    (leave, builder)
}

#[test]
fn names_are_looked_up_on_another_thread_and_addresses_never() {
    let hosts = Hosts::default();
    run_on(hosts.builder(), async {
        let found: Vec<_> = lookup_host("here:80").await?.collect();
        assert_eq!(found, [SocketAddr::from((Ipv4Addr::LOCALHOST, 80))]);
        let (name, thread) = hosts.asked.lock().unwrap().pop().unwrap();
        assert!(name == "here" && thread != thread::current().id());
        let numbers = [
            lookup_host("[::1]:7").await?.next(),
            lookup_host((IpAddr::from(Ipv6Addr::LOCALHOST), 7)).await?.next(),
            lookup_host(("::1", 7)).await?.next(),
        ];
        assert!(numbers.iter().all(|found| *found == Some((Ipv6Addr::LOCALHOST, 7).into())));
        assert!(hosts.asked.lock().unwrap().is_empty());
        Ok(())
    });
}

#[test]
fn the_system_resolves_localhost_and_no_impossible_names() {
    run(async {
        assert!(lookup_host("localhost:1").await?.all(|found| found.ip().is_loopback()));
        let error = TcpStream::connect("nowhere.invalid:1").await.unwrap_err();
        assert!(error.to_string().starts_with("looking up \"nowhere.invalid\": "), "{error}");
        Ok(())
    });
}

#[test]
fn the_first_address_that_accepts_is_taken() {
    run_on(Hosts::default().builder(), async {
        let listener = TcpListener::bind((TWO[1], 0))?;
        let port = listener.local_addr()?.port();
        let mut client = TcpStream::connect(("two", port)).await?;
        let (mut server, _) = listener.accept().await?;
        server.send("hello").await?;
        assert_eq!(receive(&mut client, 5).await?, b"hello");
        // The error names all addresses that were tried.
        drop((listener, server, client));
        yield_now().await;
        let error = TcpStream::connect(("two", port)).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        let addresses = TWO.map(|address| format!("{address}:{port}"));
        for named in ["\"two\"", &addresses[0], &addresses[1]] {
            assert!(error.to_string().contains(named), "no {named} in: {error}");
        }
        Ok(())
    });
}

#[test]
fn errors_contain_the_name_that_does_not_resolve() {
    run_on(Hosts::default().builder(), async {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        for (name, why) in [
            ("missing", "no such host"),
            ("none", "no address"),
            ("panics", "panicked: on purpose"),
        ] {
            let errors = [
                lookup_host((name, 1)).await.map(drop).unwrap_err(),
                TcpStream::connect((name, 1)).await.unwrap_err(),
                socket.connect((name, 1)).await.unwrap_err(),
            ];
            for error in errors {
                let text = error.to_string();
                assert!(text.contains(&format!("{name:?}")) && text.contains(why), "{text}");
            }
        }
        let error = TcpListener::bind("missing:0").unwrap_err();
        assert_eq!(error.to_string(), "looking up \"missing\": no such host");
        let error = TcpStream::connect("no port").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        let nothing: &[SocketAddr] = &[];
        assert!(TcpStream::connect(nothing).await.is_err());
        Ok(())
    });
}

#[test]
fn an_empty_list_of_addresses_is_not_found() {
    run(async {
        let none: &[SocketAddr] = &[];
        for error in [
            TcpStream::connect(none).await.unwrap_err(),
            TcpListener::bind(none).unwrap_err(),
            UdpSocket::bind(none).unwrap_err(),
            lookup_host(none).await.err().expect("an address was found"),
        ] {
            assert_eq!(error.kind(), io::ErrorKind::NotFound);
            assert_eq!(error.to_string(), "the list of addresses is empty; give at least one");
        }
        Ok(())
    });
}

#[test]
fn the_loop_runs_while_a_resolver_does_not_answer() {
    let (leave, builder) = silent();
    run_on(builder, async {
        let turns = Rc::new(Cell::new(0));
        let counted = turns.clone();
        let other = spawn(async move {
            for _ in 0..100 {
                counted.set(counted.get() + 1);
                yield_now().await;
            }
            drop(leave);
        });
        assert_eq!(lookup_host("slow:1").await?.count(), 1);
        assert_eq!(turns.get(), 100);
        other.await?;
        Ok(())
    });
}

#[test]
fn a_resolver_that_never_answers_times_out() {
    let (leave, builder) = silent();
    run_on(builder.shutdown_timeout(SOON), async {
        let error = TcpStream::connect_timeout("silent:1", SOON).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(error.to_string(), format!("looking up \"silent\": no answer within {SOON:?}"));
        let options = ConnectOptions::new().timeout(SOON);
        assert!(options.connect("silent:1").await.is_err());
        // The future of a lookup can be dropped too.
        assert!(timeout(SOON, lookup_host("silent:1")).await.is_err());
        Ok(())
    });
    drop(leave);
}

/// A program that has given up on a name would otherwise end only after the shutdown timeout.
#[test]
fn the_end_of_a_runtime_does_not_wait_for_a_resolver() {
    let (leave, left) = channel::<()>();
    let (begin, begun) = channel();
    let left = Mutex::new(left);
    let builder = Runtime::builder().shutdown_timeout(Duration::MAX).resolver(move |_| {
        begin.send(()).unwrap();
        _ = left.lock().unwrap().recv();
        Ok(Vec::new())
    });
    run_on(builder, async move {
        let mut lookup = Box::pin(lookup_host("silent:1"));
        assert!(touch(lookup.as_mut()).is_none());
        begun.recv().unwrap();
        Ok(())
    });
    drop(leave);
}

#[test]
fn udp_sends_to_a_name() {
    run_on(Hosts::default().builder(), async {
        let (one, other) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
        one.connect(("here", other.local_addr()?.port())).await?;
        one.send("by name").await?;
        assert_eq!(&*other.recv().await?, b"by name");
        Ok(())
    });
}

/// The same seed gives the same run, since the machine's resolver is not used.
#[test]
fn a_simulated_network_resolves_the_given_names() {
    sim::run(1, async {
        let found: Vec<_> = lookup_host("localhost:1").await?.collect();
        assert_eq!(found, [SocketAddr::from((Ipv4Addr::LOCALHOST, 1))]);
        let error = lookup_host("example.org:1").await.map(drop).unwrap_err();
        assert!(error.to_string().contains("resolver"), "{error}");
        io::Result::Ok(())
    })
    .unwrap();
    let (simulated, hosts) = (sim::Sim::builder(1).build(), Hosts::default());
    sim::run_on(&simulated, hosts.builder(), async {
        assert_eq!(lookup_host("here:1").await?.count(), 1);
        assert_eq!(hosts.asked.lock().unwrap()[0].1, thread::current().id());
        io::Result::Ok(())
    })
    .unwrap();
}
