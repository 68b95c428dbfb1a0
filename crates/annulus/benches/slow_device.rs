//! The latency of pings to a server that also writes to a slow device, for each file policy.
//!
//! It needs root, a loop device, `mkfs.ext4`, and a control group that limits block devices.

#[allow(dead_code, reason = "the test uses more of it")]
#[path = "../tests/slow_device/disk.rs"]
mod disk;

use annulus::fs::{File, Policy};
use annulus::net::TcpListener;
use annulus::{Runtime, spawn};
use disk::Disk;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

const ROUNDS: usize = 5;
/// `SLICE` is how long one policy runs before the next. `None` in `SLICES` means a server that
/// writes nothing.
const SLICE: Duration = Duration::from_secs(1);
const SLICES: [Option<Policy>; 3] = [None, Some(Policy::Adaptive), Some(Policy::Inline)];

/// Serves one connection of pings, while writing and syncing a file over and over.
fn serve(policy: Option<Policy>, file: PathBuf, ready: mpsc::Sender<SocketAddr>) {
    let builder = Runtime::builder().file_policy(policy.unwrap_or_default());
    let served: io::Result<()> = builder.build().unwrap().block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        ready.send(listener.local_addr()?).expect("the client has ended");
        let (mut stream, _) = listener.accept().await?;
        if policy.is_some() {
            spawn(async move {
                let file = File::create(&file).await?;
                let mut piece = vec![7; 64 * 1024];
                for turn in 0.. {
                    let (written, back) = file.write_at(piece, turn % 64 * 65_536).await;
                    written?;
                    piece = back;
                    if turn % 4 == 3 {
                        file.sync_data().await?;
                    }
                }
                Ok::<(), io::Error>(())
            });
        }
        while let Some(lease) = stream.recv().await? {
            stream.send(lease).await?;
        }
        Ok(())
    });
    served.unwrap();
}

/// Returns the 99th percentile of the ping times, in microseconds.
#[allow(clippy::disallowed_methods, reason = "the client of a measurement has a clock of its own")]
fn p99_beside(policy: Option<Policy>, file: PathBuf) -> f64 {
    let (ready, address) = mpsc::channel();
    let server = thread::spawn(move || serve(policy, file, ready));
    let mut stream = TcpStream::connect(address.recv().unwrap()).unwrap();
    stream.set_nodelay(true).unwrap();
    let (begin, mut times) = (std::time::Instant::now(), Vec::new());
    while begin.elapsed() < SLICE {
        let began = std::time::Instant::now();
        stream.write_all(&[1; 64]).unwrap();
        stream.read_exact(&mut [0; 64]).unwrap();
        times.push(began.elapsed().as_secs_f64() * 1e6);
    }
    drop(stream);
    server.join().unwrap();
    times.sort_by(f64::total_cmp);
    times[times.len() * 99 / 100]
}

fn main() {
    let disk = match Disk::new() {
        Ok(disk) => disk,
        Err(missing) => return println!("skipped: {missing}"),
    };
    println!("p99 of pings, µs: without files | adaptive | inline");
    for _ in 0..ROUNDS {
        let row = SLICES.map(|policy| p99_beside(policy, disk.path().join("beside")));
        println!("{:.0} | {:.0} | {:.0}", row[0], row[1], row[2]);
    }
}
