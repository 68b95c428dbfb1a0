use annulus::net::TcpStream;
use annulus::shards::{Receiver, channel};

fn connections() -> Receiver<TcpStream> {
    let (_sender, receiver) = channel(16);
    receiver
}

fn main() {
    drop(connections());
}
