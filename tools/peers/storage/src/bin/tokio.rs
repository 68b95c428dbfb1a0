//! The storage contender on tokio, on one thread: file reads with a task per read in flight, and
//! servers of blocks and of a log with a task per connection. Each read or durable write is a plain
//! call in `spawn_blocking`. With the mode `fs`, the cold and warm reads of jobs are calls of
//! `tokio::fs`, which needs a file per task because of its cursor. `tokio::fs` has no aligned memory,
//! so direct reads are always plain calls.

use std::fs::File;
use std::io::{self, Error, SeekFrom};
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::process::ExitCode;
use std::sync::Arc;

use listen::Address;
use peer_storage::log::{Answer, Append, INPUT, Place, Producer, QUEUE, Records, Writer};
use peer_storage::{
    BACKLOG, Block, Cache, Job, Kv, REQUEST, SHORTAGE, Task, announce, ended, must, task, whole,
};
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
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
        Task::Log(place) => runtime.block_on(serve_log(place)),
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

fn listener(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    let listener = socket.listen(BACKLOG as u32)?;
    announce(&Address::Tcp(listener.local_addr()?));
    Ok(listener)
}

async fn serve(kv: Kv) -> io::Result<()> {
    let listener = listener(kv.address)?;
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

async fn serve_log(place: Place) -> io::Result<()> {
    let (queue, appends) = mpsc::channel(QUEUE);
    tokio::spawn(async {
        let ended_with = write(Writer::new(place.dir), appends).await;
        ended("tokio", ended_with.err().unwrap_or_else(|| Error::other("the log has ended")));
        std::process::exit(1)
    });
    let listener = listener(place.address)?;
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(producer(stream, Producer::new(queue.clone())))),
            Err(_) => time::sleep(SHORTAGE).await,
        }
    }
}

async fn producer(mut stream: TcpStream, mut producer: Producer) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut input, mut answers) = (Vec::with_capacity(INPUT), Vec::new());
    while stream.read_buf(&mut input).await? > 0 {
        producer.process(&mut input, &mut answers).await?;
        stream.write_all(&answers).await?;
        answers.clear();
    }
    Ok(())
}

/// Stores queued appends. Those that wait together are synced together.
async fn write(mut writer: Writer, mut queue: mpsc::Receiver<Append<Answer>>) -> io::Result<()> {
    let mut records = Records::default();
    while let Some(first) = queue.recv().await {
        let batch = records.batch(first, || queue.try_recv().ok());
        let store = move || writer.store(&batch.bytes).map(|()| (writer, batch));
        let (stored, batch) = spawn_blocking(store).await.map_err(Error::other)??;
        writer = stored;
        for (answer, outcome) in batch.answers() {
            // A producer that has left needs no answer.
            _ = answer.send(outcome);
        }
    }
    Ok(())
}
