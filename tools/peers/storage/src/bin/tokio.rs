//! The storage contender on tokio, on one thread: file reads with a task per read in flight, and a
//! block server with a task per connection. Each read is a plain call in `spawn_blocking`. With the
//! mode `fs`, the cold and warm reads of jobs are calls of `tokio::fs`, which needs a file per task
//! because of its cursor. `tokio::fs` has no aligned memory, so direct reads are always plain
//! calls.

use std::fs::File;
use std::io::{self, Error, SeekFrom};
use std::os::unix::fs::FileExt;
use std::process::ExitCode;
use std::sync::Arc;

use listen::Address;
use peer_storage::{
    BACKLOG, Block, Cache, Job, Kv, REQUEST, SHORTAGE, Task, announce, ended, must, task, whole,
};
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time;

fn main() -> ExitCode {
    let (task, mode) = match task(&["fs"]) {
        Ok(found) => found,
        Err(code) => return code,
    };
    let runtime = must(Builder::new_current_thread().enable_all().build());
    let run = if mode.is_some() { files } else { calls };
    let ran = match task {
        Task::Reads(reads) => reads.answer(|job| match job.cache {
            Cache::Direct => calls(&runtime, job),
            Cache::Cold | Cache::Warm => run(&runtime, job),
        }),
        Task::Kv(kv) => runtime.block_on(serve(kv)),
    };
    ran.map_or_else(|error| ended("tokio", error), |()| ExitCode::SUCCESS)
}

fn calls(runtime: &Runtime, job: &Arc<Job>) -> io::Result<()> {
    let file = Arc::new(job.open()?);
    let read = |job: Arc<Job>, file: Arc<File>| async move {
        let (mut reader, mut block) = (job.reader(), Block::new());
        while let Some(offset) = reader.next()? {
            block = read_at(&file, block, offset).await?;
        }
        Ok(())
    };
    all(runtime, (0..job.depth).map(|_| read(job.clone(), file.clone())))
}

async fn read_at(file: &Arc<File>, mut block: Box<Block>, offset: u64) -> io::Result<Box<Block>> {
    let file = file.clone();
    let read = move || file.read_exact_at(&mut block.0, offset).map(|()| block);
    spawn_blocking(read).await.map_err(Error::other)?
}

fn files(runtime: &Runtime, job: &Arc<Job>) -> io::Result<()> {
    let read = |job: Arc<Job>| async move {
        let mut file = tokio::fs::File::open(&job.path).await?;
        let (mut reader, mut block) = (job.reader(), Block::new());
        while let Some(offset) = reader.next()? {
            file.seek(SeekFrom::Start(offset)).await?;
            whole(file.read_exact(&mut block.0).await?)?;
        }
        Ok(())
    };
    all(runtime, (0..job.depth).map(|_| read(job.clone())))
}

fn all(
    runtime: &Runtime,
    tasks: impl Iterator<Item = impl Future<Output = io::Result<()>> + Send + 'static>,
) -> io::Result<()> {
    runtime.block_on(async {
        let tasks: Vec<JoinHandle<_>> = tasks.map(tokio::spawn).collect();
        for task in tasks {
            task.await.map_err(Error::other)??;
        }
        Ok(())
    })
}

async fn serve(kv: Kv) -> io::Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(kv.address)?;
    let listener: TcpListener = socket.listen(BACKLOG as u32)?;
    announce(&Address::Tcp(listener.local_addr()?));
    let (file, kv) = (Arc::new(kv.open()?), Arc::new(kv));
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(connection(stream, file.clone(), kv.clone()))),
            Err(_) => time::sleep(SHORTAGE).await,
        }
    }
}

async fn connection(mut stream: TcpStream, file: Arc<File>, kv: Arc<Kv>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut request, mut block) = ([0; REQUEST], Block::new());
    loop {
        stream.read_exact(&mut request).await?;
        block = read_at(&file, block, kv.offset(&request)?).await?;
        for piece in 0..kv.pieces {
            stream.write_all(&block.0[kv.piece(piece)]).await?;
        }
    }
}
