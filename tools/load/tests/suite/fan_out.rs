//! The load of a broadcast, against correct and faulty servers of the plain protocol.

use annulus_load::fan_out::{FanOut, MIN_MESSAGE_BYTES, run};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

const SUBSCRIBERS: usize = 5;
const MESSAGE_BYTES: usize = 32;

/// Starts a server that sends the result of `change` to each subscriber. `change` gets the number
/// of the subscriber and the published message. Returns the server's address.
fn server(change: fn(usize, Vec<u8>) -> Vec<u8>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // The server ends with its first publisher.
    thread::spawn(move || -> io::Result<()> {
        let mut subscribers = Vec::new();
        loop {
            let (mut stream, _) = listener.accept()?;
            let mut first = [0];
            stream.read_exact(&mut first)?;
            stream.write_all(&first)?;
            if first == *b"S" {
                subscribers.push(stream);
            } else if !subscribers.is_empty() {
                return broadcast(stream, &mut subscribers, change);
            }
        }
    });
    address
}

fn broadcast(
    mut publisher: TcpStream,
    subscribers: &mut [TcpStream],
    change: fn(usize, Vec<u8>) -> Vec<u8>,
) -> io::Result<()> {
    loop {
        let mut message = vec![0; MESSAGE_BYTES];
        publisher.read_exact(&mut message)?;
        for (index, subscriber) in subscribers.iter_mut().enumerate() {
            subscriber.write_all(&change(index, message.clone()))?;
        }
    }
}

fn fan_out(address: SocketAddr) -> FanOut {
    let (warm_up, duration) = (Duration::ZERO, Duration::from_millis(20));
    FanOut {
        address,
        subscribers: SUBSCRIBERS,
        message_bytes: MESSAGE_BYTES,
        in_flight: 4,
        warm_up,
        duration,
    }
}

#[test]
fn all_deliveries_are_counted() {
    let done = run(&fan_out(server(|_, message| message)), &mut ()).unwrap();
    assert!(done.count >= 4 * SUBSCRIBERS as u64, "{done:?}");
    assert_eq!(done.count, done.latencies.len() * SUBSCRIBERS as u64);
}

#[test]
fn changed_swapped_and_repeated_messages_are_errors() {
    for (change, part) in [
        (flipped as fn(usize, Vec<u8>) -> Vec<u8>, "subscriber 3 received a wrong byte"),
        (swapped, "received a wrong byte at or after message 0"),
        (repeated, "subscriber 1 received a wrong byte"),
    ] {
        let error = run(&fan_out(server(change)), &mut ()).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}

/// Changes the last byte of each message to subscriber 3.
fn flipped(subscriber: usize, mut message: Vec<u8>) -> Vec<u8> {
    message[MESSAGE_BYTES - 1] ^= u8::from(subscriber == 3);
    message
}

/// Exchanges the numbers of messages 0 and 1.
fn swapped(_: usize, mut message: Vec<u8>) -> Vec<u8> {
    if message[4] < 2 {
        message[4] ^= 1;
    }
    message
}

/// Sends message 2 twice to subscriber 1.
fn repeated(subscriber: usize, message: Vec<u8>) -> Vec<u8> {
    if subscriber == 1 && message[4] == 2 { message.repeat(2) } else { message }
}

#[test]
fn maximum_times_are_refused_and_zero_times_publish_one_message() {
    let plan = fan_out(([127, 0, 0, 1], 1).into());
    for plan in
        [FanOut { warm_up: Duration::MAX, ..plan }, FanOut { duration: Duration::MAX, ..plan }]
    {
        let error = run(&plan, &mut ()).unwrap_err().to_string();
        assert!(error.contains("is too long: use at most 2592000 s"), "{error}");
    }
    let address = server(|_, message| message);
    let plan = FanOut { warm_up: Duration::ZERO, duration: Duration::ZERO, ..fan_out(address) };
    assert!(run(&plan, &mut ()).unwrap().count >= SUBSCRIBERS as u64);
}

#[test]
fn a_length_out_of_range_is_refused() {
    let plan =
        FanOut { message_bytes: MIN_MESSAGE_BYTES - 1, ..fan_out(([127, 0, 0, 1], 1).into()) };
    let error = run(&plan, &mut ()).unwrap_err().to_string();
    assert_eq!(error, "15 bytes per message are out of range: use 16 to 65536");
}
