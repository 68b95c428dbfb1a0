use annulus::Lease;
use annulus::shards::Shards;

fn serve(lease: &Lease) -> std::io::Result<()> {
    let served = Shards::new(2).run(async |_| {
        println!("{lease:?}");
        std::io::Result::Ok(())
    });
    served.map(drop).map_err(std::io::Error::from)
}

fn main() {
    drop(serve as fn(_) -> _);
}
