use annulus::net::TcpStream;

async fn serve(stream: &mut TcpStream) -> std::io::Result<()> {
    let answer = vec![b'x'; 10];
    stream.send(&answer).await
}

fn main() {
    drop(annulus::run(async { serve(&mut TcpStream::connect("127.0.0.1:1").await?).await }));
}
