use annulus::net::TcpStream;
use annulus::shards::Shards;

fn serve(stream: &TcpStream) -> std::io::Result<()> {
    let served = Shards::new(2).run(async |_| {
        println!("{:?}", stream.peer_addr());
        std::io::Result::Ok(())
    });
    served.map(drop).map_err(std::io::Error::from)
}

fn main() {
    drop(serve as fn(_) -> _);
}
