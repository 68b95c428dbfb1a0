use annulus::process::Child;
use annulus::shards::Shards;

fn wait(child: &Child) -> std::io::Result<()> {
    let waited = Shards::new(2).run(async |_| {
        println!("{:?}", child.id());
        std::io::Result::Ok(())
    });
    waited.map(drop).map_err(std::io::Error::from)
}

fn main() {
    drop(wait as fn(_) -> _);
}
