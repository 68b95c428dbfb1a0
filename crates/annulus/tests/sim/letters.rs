//! Datagrams: clients write letters to a server that sends them back, over links that lose, double and reorder them. What
//! anybody hears was written, and came whole. Within the host, all of it comes, once and in order.

use crate::faulty::send_faulty;
use crate::reader::stretch;
use crate::scene::{Scene, joined};
use annulus::net::{UdpSocket, UnixDatagram};
use annulus::spawn;
use annulus::time::timeout;
use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

/// Longer than any letter is under way.
const SILENCE: Duration = Duration::from_secs(5);
/// A letter's key, number and length, eight bytes each.
const HEAD: usize = 24;
/// What the smallest send buffer of any network holds.
const LONGEST_WHISPER: u64 = 1000;

/// One client's part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Correspondence {
    /// Which text.
    pub(crate) key: u64,
    pub(crate) letters: u64,
    /// Most bytes of a letter's text.
    pub(crate) most: u64,
}

/// Sends everything back, the memory it came in.
pub(crate) async fn send_back(scene: Scene, socket: UdpSocket) -> io::Result<()> {
    loop {
        match scene.insist(async || socket.recv_from().await).await {
            // What becomes of it is its writer's business.
            Ok((letter, from)) => drop(socket.send_to(letter, from).await),
            Err(_) => scene.pause().await,
        }
    }
}

/// Writes, and hears meanwhile what comes back, until nothing does.
pub(crate) async fn correspond(
    scene: Scene,
    part: Correspondence,
    server: SocketAddr,
) -> io::Result<()> {
    let socket = Rc::new(open(&scene).await);
    let written = Rc::new(Cell::new(0));
    let writer = spawn(write(scene.clone(), socket.clone(), part, server, written.clone()));
    let over = || written.get() == part.letters;
    loop {
        match timeout(SILENCE, socket.recv_from()).await {
            Ok(Ok((letter, from))) => {
                check(&letter, from == server, part, written.get())?;
                scene.letter();
            }
            Ok(Err(_)) => scene.pause().await,
            Err(_) if over() => break,
            Err(_) => {}
        }
    }
    joined(writer).await?;
    scene.gate().count();
    Ok(())
}

async fn write(
    scene: Scene,
    socket: Rc<UdpSocket>,
    part: Correspondence,
    server: SocketAddr,
    written: Rc<Cell<u64>>,
) -> io::Result<()> {
    while written.get() < part.letters {
        let first = written.get();
        let count = scene.between(1, 4).min(part.letters - first);
        written.set(first + count);
        if count > 1 {
            let size = HEAD as u64 + scene.between(0, part.most);
            let all = (first..first + count).flat_map(|nth| letter(part.key, nth, size));
            _ = socket.send_segments(all.collect::<Vec<_>>(), size as u16, server).await;
        } else if scene.below(20) == 0 {
            _ = socket.send_to("", server).await;
        } else if scene.below(1000) < scene.plan().panics {
            let size = HEAD as u64 + scene.between(0, part.most);
            let bytes = letter(part.key, first, size);
            _ = send_faulty(&scene, bytes, |bytes| socket.send_to(bytes, server)).await;
        } else {
            let size = HEAD as u64 + scene.between(0, part.most);
            // One that is dropped before it is ready is not sent; else it is.
            _ = scene.give_up(socket.send_to(letter(part.key, first, size), server)).await;
        }
        scene.pause().await;
    }
    _ = socket.flush().await;
    Ok(())
}

/// The nth letter of a text.
fn letter(key: u64, nth: u64, size: u64) -> Vec<u8> {
    let head = [key, nth, size].map(u64::to_le_bytes);
    let text = stretch(key, nth * 1000, size - HEAD as u64);
    [head.as_flattened(), &text].concat()
}

/// A letter is empty, or one that was written by now, and all of it.
fn check(bytes: &[u8], from_server: bool, part: Correspondence, written: u64) -> io::Result<()> {
    let word = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let sound = match (word(0), word(8), word(16)) {
        (Some(key), Some(nth), Some(size)) => {
            key == part.key
                && nth < written
                && size == bytes.len() as u64
                && bytes == letter(key, nth, size)
        }
        _ => bytes.is_empty(),
    };
    if sound && from_server {
        return Ok(());
    }
    let key = part.key;
    Err(io::Error::other(format!("a letter of {} bytes that {key} never wrote", bytes.len())))
}

/// A socket, as soon as there is a descriptor for one.
pub(crate) async fn open(scene: &Scene) -> UdpSocket {
    loop {
        match UdpSocket::bind("127.0.0.1:0") {
            Ok(socket) => {
                _ = socket.set_coalescing(scene.below(2) == 0);
                return socket;
            }
            Err(_) => scene.pause().await,
        }
    }
}

/// Letters within the host: each arrives, once and in order.
pub(crate) async fn whisper(scene: Scene, part: Correspondence) -> io::Result<()> {
    let (ear, mouth) = pair(&scene).await;
    let speaker = scene.clone();
    let writer = spawn(async move {
        for nth in 0..part.letters {
            let size = HEAD as u64 + speaker.between(0, part.most.min(LONGEST_WHISPER));
            mouth.send(letter(part.key, nth, size)).await?;
            speaker.pause().await;
        }
        mouth.flush().await
    });
    for nth in 0..part.letters {
        let heard = scene.insist(async || ear.recv().await).await?;
        check(&heard, heard.get(8..16) == Some(&nth.to_le_bytes()), part, part.letters)?;
        scene.letter();
    }
    joined(writer).await?;
    scene.gate().count();
    Ok(())
}

/// Two sockets that hear each other, as soon as there are descriptors for them.
async fn pair(scene: &Scene) -> (UnixDatagram, UnixDatagram) {
    loop {
        match UnixDatagram::pair() {
            Ok(pair) => return pair,
            Err(_) => scene.pause().await,
        }
    }
}
