use annulus::net::TcpStream;

async fn serve(stream: &mut TcpStream) -> std::io::Result<()> {
    let lease = stream.recv().await?;
    std::thread::spawn(move || println!("{lease:?}"));
    Ok(())
}

fn main() {
    drop(annulus::run(async { serve(&mut TcpStream::connect("127.0.0.1:1").await?).await }));
}
