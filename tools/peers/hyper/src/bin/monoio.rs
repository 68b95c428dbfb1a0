//! hyper on monoio, io_uring, by monoio-compat.

use io_uring::{cqueue, squeue};
use monoio::io::IntoPollIo;
use monoio::net::{ListenerOpts, TcpListener};
use monoio::{IoUringDriver, RuntimeBuilder, time};
use monoio_compat::hyper::{MonoioExecutor, MonoioIo};
use peer_hyper::{BACKLOG, SHORTAGE, Task, announce, must, on_ring, serve, task};

fn main() {
    let task = task(&[]);
    let builder = RuntimeBuilder::<IoUringDriver>::new().uring_builder(flags());
    on_ring(builder.enable_timer().build()).block_on(accept(task))
}

/// Monoio leaves the ring's flags to its user. These suit one thread.
fn flags() -> io_uring::Builder {
    let mut builder = io_uring::IoUring::<squeue::Entry, cqueue::Entry>::builder();
    builder.setup_single_issuer().setup_defer_taskrun();
    builder
}

async fn accept(task: Task) {
    let options = ListenerOpts::new().reuse_port(false).backlog(BACKLOG);
    let listener = must(TcpListener::bind_with_config(task.address, &options));
    announce(must(listener.local_addr()));
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // The connection works without TCP_NODELAY, too.
                let _ = stream.set_nodelay(true);
                let Ok(stream) = stream.into_poll_io() else { continue };
                let service = task.service.clone();
                monoio::spawn(async move {
                    serve(&service, MonoioIo::new(stream), MonoioExecutor).await;
                });
            }
            Err(_) => time::sleep(SHORTAGE).await,
        }
    }
}
