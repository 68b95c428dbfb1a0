//! The drivers on the simulated kernel.
#![allow(unsafe_code)]

use annulus_driver::*;
use annulus_kernel::*;
use annulus_sim::{Profile, Sim};
use rustix::io::Errno;
use std::net::SocketAddr;
use std::rc::Rc;

const POOL_SIZE: PoolSize = PoolSize { buffer: 4096, count: 64 };

fn uring(sim: &Rc<Sim>) -> Driver {
    let config = UringConfig { kernel: sim.clone(), pool: POOL_SIZE, ..UringConfig::default() };
    Driver::Uring(Box::new(Uring::new(config).unwrap()))
}

fn epoll(sim: &Rc<Sim>) -> Driver {
    Driver::Epoll(Box::new(Epoll::new(sim.clone(), POOL_SIZE).unwrap()))
}

/// Takes turns until `count` events have arrived.
fn wait_for_events(driver: &mut Driver, count: usize) -> Vec<Event> {
    let mut taken = Vec::new();
    while taken.len() < count {
        driver.refill();
        driver.turn(annulus_driver::Wait::UpTo(None)).unwrap();
        while let Some(event) = driver.next_event() {
            taken.push(event);
        }
    }
    taken
}

fn submit_memory(driver: &mut Driver, token: Token, op: MemoryOp) {
    // SAFETY: each test keeps the memory until the terminal event.
    unsafe { driver.submit_memory(token, op) };
}

fn owned(number: i32) -> Fd {
    // SAFETY: the descriptor belongs to the test, which uses it only with its simulated kernel and
    // closes it once.
    unsafe { Fd::from_raw(number) }
}

#[test]
fn each_driver_connects_receives_and_closes() {
    type OpenDriver = fn(&Rc<Sim>) -> Driver;
    let drivers: [(Profile, OpenDriver, bool); 3] = [
        (Profile::current(), uring, true),
        (Profile::old(), uring, false),
        (Profile::old().refusing(Errno::PERM), epoll, true),
    ];
    for (profile, open, limits) in drivers {
        let sim = Sim::builder(5).profile(profile).build();
        let mut driver = open(&sim);
        assert_eq!(driver.supports_receive_limit(), limits);
        let listener = owned(sim.socket(Domain::Inet, SocketType::Stream, true).unwrap());
        sim.bind(listener, &SocketAddr::from(([127, 0, 0, 1], 7000)).into()).unwrap();
        sim.listen(listener, 8).unwrap();
        let client = owned(sim.socket(Domain::Inet, SocketType::Stream, true).unwrap());
        let address = Address::from(SocketAddr::from(([127, 0, 0, 1], 7000)));
        let (bytes, token) = (address.as_bytes(), |kind| Token::new(kind, 1, 0));
        driver.submit(token(OpKind::Accept), Op::AcceptMulti { fd: listener });
        let (address, len) = (bytes.as_ptr(), bytes.len() as u32);
        submit_memory(
            &mut driver,
            token(OpKind::Connect),
            MemoryOp::Connect { fd: client, address, len },
        );
        let made = wait_for_events(&mut driver, 2);
        let accepted = made.iter().find(|event| event.token.kind() == OpKind::Accept).unwrap();
        let server = owned(accepted.result.unwrap() as i32);

        driver.submit(token(OpKind::Recv), Op::RecvMulti { fd: server, limit: 0 });
        let text = b"through the driver";
        let (buffer, len) = (text.as_ptr(), text.len() as u32);
        submit_memory(
            &mut driver,
            token(OpKind::Send),
            MemoryOp::SendNow { fd: client, buffer, len },
        );
        let got = wait_for_events(&mut driver, 1)[0];
        assert_eq!((got.result, got.more), (Ok(len), true));
        let id = got.buffer.unwrap();
        // SAFETY: the event has lent the buffer to this test.
        let bytes = unsafe { std::slice::from_raw_parts(driver.pool().address(id), text.len()) };
        assert_eq!(bytes, text);
        driver.pool().give_back(id);

        driver.submit(Token::IGNORED, Op::Cancel { target: token(OpKind::Recv) });
        driver.submit(Token::IGNORED, Op::Cancel { target: token(OpKind::Accept) });
        assert!(wait_for_events(&mut driver, 2).iter().all(|event| !event.more));
        for fd in [client, server, listener] {
            driver.submit(Token::IGNORED, Op::Close { fd });
        }
        driver.turn(annulus_driver::Wait::No).unwrap();
        sim.check();
        driver.close().unwrap();
        assert_eq!((sim.leftovers(), sim.open_descriptors()), (Vec::new(), 0));
    }
}
