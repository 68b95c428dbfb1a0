use annulus::fs::File;

async fn save(file: &mut File) -> std::io::Result<()> {
    let content = vec![b'x'; 10];
    let (written, _) = file.write_all(&content).await;
    written
}

fn main() {
    drop(annulus::run(async { save(&mut File::create("file").await?).await }));
}
