//! The storage contender on monoio, on io_uring and one thread: file reads with a task per read in
//! flight, and a block server with a task per connection.

use std::io;
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;

use io_uring::{cqueue, squeue};
use listen::Address;
use monoio::buf::{IoBuf, IoBufMut};
use monoio::fs::File;
use monoio::io::{AsyncReadRentExt, AsyncWriteRentExt};
use monoio::net::{ListenerOpts, TcpListener, TcpStream};
use monoio::{IoUringDriver, RuntimeBuilder, time};
use peer_storage::{
    BACKLOG, BLOCK, Block, Job, Kv, REQUEST, SHORTAGE, Task, announce, ended, ring, task, unserved,
    whole,
};

/// A block as memory for monoio. All of it always counts as initialised.
struct Memory(Box<Block>);

// SAFETY: the memory is in a box, so it does not move, and all of it is initialised.
unsafe impl IoBuf for Memory {
    fn read_ptr(&self) -> *const u8 {
        self.0.0.as_ptr()
    }

    fn bytes_init(&self) -> usize {
        BLOCK
    }
}

// SAFETY: the memory is in a box, so it does not move, and all of it may be written.
unsafe impl IoBufMut for Memory {
    fn write_ptr(&mut self) -> *mut u8 {
        self.0.0.as_mut_ptr()
    }

    fn bytes_total(&mut self) -> usize {
        BLOCK
    }

    unsafe fn set_init(&mut self, _len: usize) {}
}

fn main() -> ExitCode {
    let task = match task(&[]) {
        Ok((task, _)) => task,
        Err(code) => return code,
    };
    let builder = RuntimeBuilder::<IoUringDriver>::new().uring_builder(flags());
    let mut runtime = ring(builder.enable_timer().build());
    let ran = match task {
        Task::Reads(reads) => reads.answer(|job| runtime.block_on(run(job))),
        Task::Kv(kv) => runtime.block_on(serve(kv)),
        Task::Log(_) => unserved(),
    };
    ran.map_or_else(|error| ended("monoio", error), |()| ExitCode::SUCCESS)
}

/// Monoio leaves the ring's flags to its user. These suit one thread.
fn flags() -> io_uring::Builder {
    let mut builder = io_uring::IoUring::<squeue::Entry, cqueue::Entry>::builder();
    builder.setup_single_issuer().setup_defer_taskrun();
    builder
}

async fn run(job: &Arc<Job>) -> io::Result<()> {
    let file = Rc::new(File::from_std(job.open()?)?);
    let read = |job: Arc<Job>, file: Rc<File>| async move {
        let (mut reader, mut memory) = (job.reader(), Memory(Block::new()));
        while let Some(offset) = reader.next()? {
            memory = read_at(&file, memory, offset).await?;
        }
        io::Result::Ok(())
    };
    let tasks = (0..job.depth).map(|_| monoio::spawn(read(job.clone(), file.clone())));
    for task in tasks.collect::<Vec<_>>() {
        task.await?;
    }
    Ok(())
}

async fn read_at(file: &File, memory: Memory, offset: u64) -> io::Result<Memory> {
    let (read, memory) = file.read_at(memory, offset).await;
    whole(read?)?;
    Ok(memory)
}

async fn serve(kv: Kv) -> io::Result<()> {
    let options = ListenerOpts::new().reuse_port(false).backlog(BACKLOG);
    let listener = TcpListener::bind_with_config(kv.address, &options)?;
    announce(&Address::Tcp(listener.local_addr()?));
    let (file, kv) = (Rc::new(File::from_std(kv.open()?)?), Rc::new(kv));
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                monoio::spawn(connection(stream, file.clone(), kv.clone()));
            }
            Err(_) => time::sleep(SHORTAGE).await,
        }
    }
}

async fn connection(mut stream: TcpStream, file: Rc<File>, kv: Rc<Kv>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut request, mut memory) = (vec![0; REQUEST], Memory(Block::new()));
    loop {
        let (received, bytes) = stream.read_exact(request).await;
        received?;
        request = bytes;
        memory = read_at(&file, memory, kv.offset(&request)?).await?;
        for piece in 0..kv.pieces {
            let (sent, slice) = stream.write_all(memory.slice(kv.piece(piece))).await;
            sent?;
            memory = slice.into_inner();
        }
    }
}
