//! Simulated kernels that refuse a ring or lack newer features.

use annulus::net::{TcpListener, TcpStream, UnixDatagram};
use annulus::sim::{Profile, Sim, run_on};
use annulus::{DriverChoice, DriverKind, Runtime};
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
        let builder = Runtime::builder().driver(DriverChoice::Uring);
        let ran = run_on(&sim, builder, async { io::Result::Ok(()) });
        let text = ran.unwrap_err().to_string();
        assert!(text.to_lowercase().contains(word), "{errno:?}: {text}");
        assert!(!text.contains('\n'), "more than one line: {text}");
        assert_eq!(sim.leftovers(), [""; 0]);
    }
}

#[test]
fn epoll_runs_if_requested_or_if_a_ring_is_refused() {
    let demanded = (Profile::current(), DriverChoice::Epoll, "as requested");
    let refused = REFUSALS
        .map(|(errno, word)| (Profile::current().refusing(errno), DriverChoice::Auto, word));
    for (profile, choice, word) in refused.into_iter().chain([demanded]) {
        let sim = Sim::builder(1).profile(profile).build();
        let builder = Runtime::builder().driver(choice).kernel(sim.clone());
        let mut runtime = builder.build().unwrap();
        let driver = runtime.driver();
        assert_eq!(driver.kind, DriverKind::Epoll);
        assert!(driver.reason.to_lowercase().contains(word), "{driver}");
        runtime.block_on(serve()).unwrap();
        drop(runtime);
        assert_eq!(sim.leftovers(), [""; 0]);
    }
}

/// In the simulation, the descriptor's number would refer to nothing or to another socket.
#[test]
fn a_real_descriptor_cannot_be_sent_in_a_simulation() {
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
        run_on(&sim, Runtime::builder(), serve()).unwrap();
    }
}

async fn serve() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut client = TcpStream::connect(listener.local_addr()?).await?;
    let (mut server, _) = listener.accept().await?;
    server.send("hello").await?;
    assert_eq!(client.recv().await?.as_deref(), Some(&b"hello"[..]));
    Ok(())
}
