use annulus::fs::File;

async fn size(file: &mut File) -> std::io::Result<usize> {
    let buffer = Vec::with_capacity(4096);
    Ok(file.read(buffer).await?)
}

fn main() {
    drop(annulus::run(async { size(&mut File::open("file").await?).await }));
}
