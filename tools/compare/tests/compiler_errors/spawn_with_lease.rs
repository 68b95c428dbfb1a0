use annulus::{Handle, Lease};

fn give_away(other: &Handle, lease: Lease) -> std::io::Result<()> {
    other.spawn_with(move || async move { println!("{lease:?}") }).map(drop)
}

fn main() {
    drop(give_away as fn(_, _) -> _);
}
