//! Simulated kernels that refuse a ring, or lack newer features.

use annulus::net::{TcpListener, TcpStream, UnixDatagram};
use annulus::sim::{Profile, Sim, run_on};
use annulus::{DriverChoice, Runtime};
use rustix::io::Errno;
use std::io;

/// The word that each refusal must contain.
const REFUSALS: [(Errno, &str); 4] = [
    (Errno::NOMEM, "memory"),
    (Errno::PERM, "not permitted"),
    (Errno::NOSYS, "not implemented"),
    (Errno::OPNOTSUPP, "not supported"),
];

#[test]
fn a_refused_ring_is_a_clear_error() {
    for (errno, word) in REFUSALS {
        let sim = Sim::builder(1).profile(Profile::current().refusing(errno)).build();
        let ran = run_on(&sim, Runtime::builder(), async { io::Result::Ok(()) });
        let text = ran.unwrap_err().to_string();
        assert!(text.to_lowercase().contains(word), "{errno:?}: {text}");
        assert!(!text.contains('\n'), "one line: {text}");
        assert_eq!(sim.leftovers(), [""; 0]);
    }
}

#[test]
fn there_is_no_epoll_under_a_simulated_kernel() {
    let sim = Sim::builder(1).build();
    let built = Runtime::builder().driver(DriverChoice::Epoll).kernel(sim).build();
    assert!(built.unwrap_err().to_string().contains("auto or uring"));
}

/// Its number would name nothing in the simulation, or another socket.
#[test]
fn a_real_descriptor_is_not_sent_into_a_simulation() {
    let sent = run_on(&Sim::builder(1).build(), Runtime::builder(), async {
        let (one, other) = UnixDatagram::pair()?;
        let real = std::fs::File::open("/dev/null")?.into();
        let refused = one.send_with_descriptors("lost", vec![real]).await;
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::Unsupported);
        one.send_with_descriptors("none", Vec::new()).await?;
        Ok::<_, io::Error>(other.recv().await?.to_vec())
    });
    assert_eq!(sent.unwrap(), b"none");
}

#[test]
fn every_simulated_kernel_serves() {
    let profiles = [Profile::current(), Profile::old()];
    for profile in profiles {
        let sim = Sim::builder(1).profile(profile).build();
        let received = run_on(&sim, Runtime::builder(), async {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let mut client = TcpStream::connect(listener.local_addr()?).await?;
            let (mut server, _) = listener.accept().await?;
            server.send("hello").await?;
            Ok::<_, io::Error>(client.recv().await?.map(|lease| lease.to_vec()))
        });
        assert_eq!(received.unwrap().as_deref(), Some(&b"hello"[..]));
    }
}
