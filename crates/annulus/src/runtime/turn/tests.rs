use crate::Runtime;
use annulus_driver::{Event, Kind, Token};
use annulus_kernel::Fd;
use rustix::io::Errno;
use std::io::Write;
use std::os::fd::IntoRawFd;

fn event(kind: Kind, generation: u32, slot: u32, result: Result<u32, Errno>) -> Event {
    Event { token: Token::new(kind, generation, slot), result, more: false, buffer: None }
}

#[test]
fn late_events_are_counted_and_dropped() {
    let runtime = Runtime::new().unwrap();
    let core = runtime.core();
    let (ours, mut remote) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut borrowed = core.borrow().unwrap();
    let inner = &mut *borrowed;
    let stream = inner.streams.add(&inner.state, (Fd::NONE, Vec::new(), None));
    let generation = inner.streams.slots().id(stream).generation;
    inner.streams.slots().remove(stream);
    // The next use of the slot has another generation, and gets no events of the previous one.
    let reborn = inner.streams.add(&inner.state, (Fd::NONE, Vec::new(), None));
    assert_eq!(reborn, stream);
    for kind in [
        Kind::Recv,
        Kind::Send,
        Kind::Connect,
        Kind::Nop,
        Kind::RecvDatagram,
        Kind::SendDatagram,
        Kind::DatagramWritable,
        Kind::SendZeroCopy,
    ] {
        inner.dispatch(event(kind, generation, stream, Ok(1)));
        inner.dispatch(event(kind, generation + 7, 1_000_000, Err(Errno::CANCELED)));
    }
    let accepted = ours.into_raw_fd() as u32;
    inner.dispatch(event(Kind::Accept, 5, 99, Ok(accepted)));
    assert_eq!(inner.state.driver.counters().late_completions, 17);
    inner.streams.slots().remove(reborn);
    drop(borrowed);
    // The late connection's descriptor was closed.
    core.turn(true, None).unwrap();
    assert_eq!(std::io::Read::read(&mut remote, &mut [0]).unwrap(), 0);
}

#[test]
fn unread_bytes_stay_within_recv_bound() {
    let bound = 64 * 1024;
    let mut runtime = Runtime::builder().recv_bound(bound).build().unwrap();
    let buffer = runtime.core().borrow().unwrap().state.driver.pool().buffer_size();
    let (mut stream, flooder) = runtime
        .block_on(async {
            let listener = crate::net::TcpListener::bind("127.0.0.1:0")?;
            let peer = std::net::TcpStream::connect(listener.local_addr()?)?;
            listener.accept().await.map(|(stream, _)| (stream, peer))
        })
        .unwrap();
    let mut writer = flooder.try_clone().unwrap();
    let flood = std::thread::spawn(move || while writer.write_all(&[1; 65_536]).is_ok() {});
    let mut most = 0;
    for round in 0..200 {
        // Reads now and then, so that the receive is armed again and again.
        if round % 3 == 0 {
            runtime.block_on(stream.recv()).unwrap();
        }
        runtime.core().turn(true, None).unwrap();
        let mut inner = runtime.core().borrow().unwrap();
        let slot = inner.streams.slots().indices()[0];
        most = most.max(inner.streams.get(slot).0.undelivered());
    }
    assert!(most > bound / 2, "only {most} unread bytes: the bound was not tested");
    // The kernel does not cut the last buffer of a limited receive.
    assert!(most <= bound + buffer, "{most} bytes unread");
    flooder.shutdown(std::net::Shutdown::Both).unwrap();
    flood.join().unwrap();
}
