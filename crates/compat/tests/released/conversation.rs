//! A release never changes a response.

use crate::*;
use annulus::sim::{Link, Network, Random, check};

/// Sends requests in pieces with pauses between them, pipelined and with bodies, and reads some
/// responses slowly.
#[test]
fn every_request_is_answered() {
    check(0..100, |seed| {
        let network = Network::new(seed);
        network.host("server", || async {
            start("0.0.0.0:80").ended.await.map_err(std::io::Error::other)?
        })?;
        network.client("client", converse(network.clone(), Random::new(seed)))?;
        network.run()
    });
}

async fn converse(network: Network, mut random: Random) -> std::io::Result<()> {
    let bandwidth = random.pick(&[0, 1_000_000]);
    network.link("client", "server", Some(Link { bandwidth, segment: 1448, ..Link::default() }))?;
    let mut stream = TcpStream::connect("server:80").await?;
    for _ in 0..10 {
        let (requests, expected) = requests(&mut random);
        let cut = random.below(requests.len() as u64) as usize;
        for part in [&requests[..cut], &requests[cut..]] {
            stream.send(part.to_vec()).await?;
            pause(&mut random).await;
        }
        for body in expected {
            let received = read_slowly(&mut stream, &mut random, body.len()).await?;
            assert!(received == body, "wrong body");
        }
        pause(&mut random).await;
    }
    Ok(())
}

/// Sleeps for a time around the release time.
async fn pause(random: &mut Random) {
    sleep(Duration::from_millis(random.pick(&[0, 50, 99, 101, 300]))).await;
}

/// Returns random requests, and the bodies of their responses.
fn requests(random: &mut Random) -> (Vec<u8>, Vec<Vec<u8>>) {
    let (mut requests, mut expected) = (String::new(), Vec::new());
    for _ in 0..random.between(1, 3) {
        let size = random.pick(&[1, 100, 600_000]);
        if random.chance(300) {
            let body = "b".repeat(size.min(20_000) as usize);
            let head = format!("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: {}", body.len());
            requests += &format!("{head}\r\n\r\n{body}");
            expected.push(body.into_bytes());
        } else {
            requests += &format!("GET /{size} HTTP/1.1\r\nhost: x\r\n\r\n");
            expected.push(vec![b'x'; size as usize]);
        }
    }
    (requests.into_bytes(), expected)
}

/// Reads the body of the next response, which may be followed by more.
async fn read_slowly(
    stream: &mut TcpStream,
    random: &mut Random,
    size: usize,
) -> std::io::Result<Vec<u8>> {
    let mut body = response(stream, 0).await.map_err(std::io::Error::other)?;
    while body.len() < size {
        let count = (size - body.len()).min(100_000);
        body.extend_from_slice(&stream.recv_exact(count).await?);
        if random.chance(100) {
            sleep(Duration::from_millis(200)).await;
        }
    }
    Ok(body)
}
