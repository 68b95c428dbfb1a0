//! The storage contender on compio, on io_uring and one thread: file reads with a task per read in
//! flight, and servers of blocks and of a log with a task per connection. The ring has the flags
//! that compio's documentation recommends.

use std::io::{self, Error};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;

use compio::BufResult;
use compio::buf::{IntoInner, IoBuf, IoBufExt, IoBufMut, SetLen};
use compio::driver::ProactorBuilder;
use compio::fs::{File, OpenOptions};
use compio::io::{AsyncReadAt, AsyncReadExt, AsyncWriteAtExt, AsyncWriteExt};
use compio::net::{TcpListener, TcpSocket, TcpStream};
use compio::runtime::{Runtime, RuntimeBuilder};
use compio::{runtime, time};
use listen::Address;
use peer_storage::log::{
    Answer, Append, DURABLE, INPUT, Place, Producer, QUEUE, Records, Segments,
};
use peer_storage::{
    BACKLOG, Block, Job, Kv, REQUEST, SHORTAGE, Task, announce, ended, ring, task, whole,
};
use tokio::sync::mpsc;

/// A block as memory for compio. All of it always counts as initialised.
struct Memory(Box<Block>);

impl IoBuf for Memory {
    fn as_init(&self) -> &[u8] {
        &self.0.0
    }
}

impl SetLen for Memory {
    unsafe fn set_len(&mut self, _len: usize) {}
}

impl IoBufMut for Memory {
    fn as_uninit(&mut self) -> &mut [MaybeUninit<u8>] {
        let bytes = &mut self.0.0;
        // SAFETY: initialised bytes are also valid as possibly uninitialised bytes, and compio
        // writes only initialised bytes.
        unsafe { std::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), bytes.len()) }
    }
}

fn main() -> ExitCode {
    let task = match task(&[]) {
        Ok((task, _)) => task,
        Err(code) => return code,
    };
    let mut proactor = ProactorBuilder::new();
    proactor.coop_taskrun(true).taskrun_flag(true);
    let runtime = ring(RuntimeBuilder::new().with_proactor(proactor).build());
    let ran = match task {
        Task::Reads(reads) => reads.answer(|job| run(&runtime, job)),
        Task::Kv(kv) => runtime.block_on(serve(kv)),
        Task::Log(place) => runtime.block_on(serve_log(place)),
    };
    ran.map_or_else(|error| ended("compio", error), |()| ExitCode::SUCCESS)
}

fn run(runtime: &Runtime, job: &Arc<Job>) -> io::Result<()> {
    runtime.block_on(async {
        let mut options = OpenOptions::new();
        let file = options.read(true).custom_flags(job.flags()).open(&job.path).await?;
        let read = |job: Arc<Job>, file: File| async move {
            let (mut reader, mut memory) = (job.reader(), Memory(Block::new()));
            while let Some(offset) = reader.next()? {
                memory = read_at(&file, memory, offset).await?;
            }
            io::Result::Ok(())
        };
        let tasks = (0..job.depth).map(|_| runtime::spawn(read(job.clone(), file.clone())));
        for task in tasks.collect::<Vec<_>>() {
            task.await.map_err(|_| Error::other("a task has panicked"))??;
        }
        Ok(())
    })
}

async fn read_at(file: &File, memory: Memory, offset: u64) -> io::Result<Memory> {
    let BufResult(read, memory) = file.read_at(memory, offset).await;
    whole(read?)?;
    Ok(memory)
}

async fn listener(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4().await?;
    socket.set_reuseaddr(true)?;
    socket.bind(address).await?;
    let listener = socket.listen(BACKLOG).await?;
    announce(&Address::Tcp(listener.local_addr()?));
    Ok(listener)
}

async fn serve(kv: Kv) -> io::Result<()> {
    let listener = listener(kv.address).await?;
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(kv.flags()).open(&kv.path).await?;
    let kv = Rc::new(kv);
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                runtime::spawn(connection(stream, file.clone(), kv.clone())).detach();
            }
            Err(_) => time::sleep(SHORTAGE).await,
        }
    }
}

async fn connection(mut stream: TcpStream, file: File, kv: Rc<Kv>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut request, mut memory) = ([0; REQUEST], Memory(Block::new()));
    loop {
        let BufResult(received, bytes) = stream.read_exact(request).await;
        received?;
        request = bytes;
        memory = read_at(&file, memory, kv.offset(&request)?).await?;
        for piece in 0..kv.pieces {
            let BufResult(sent, slice) = stream.write_all(memory.slice(kv.piece(piece))).await;
            sent?;
            memory = slice.into_inner();
        }
    }
}

async fn serve_log(place: Place) -> io::Result<()> {
    let (queue, appends) = mpsc::channel(QUEUE);
    runtime::spawn(async move {
        let ended_with = write(Segments::new(place.dir), appends).await;
        ended("compio", ended_with.err().unwrap_or_else(|| Error::other("the log has ended")));
        std::process::exit(1)
    })
    .detach();
    let listener = listener(place.address).await?;
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                runtime::spawn(producer(stream, Producer::new(queue.clone()))).detach()
            }
            Err(_) => time::sleep(SHORTAGE).await,
        }
    }
}

async fn producer(mut stream: TcpStream, mut producer: Producer) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut input, mut answers) = (Vec::with_capacity(INPUT), Vec::new());
    loop {
        if input.len() == input.capacity() {
            input.reserve(input.len());
        }
        let BufResult(received, buffer) = stream.append(input).await;
        input = buffer;
        if received? == 0 {
            return Ok(());
        }
        producer.process(&mut input, &mut answers).await?;
        let BufResult(sent, bytes) = stream.write_all(answers).await;
        sent?;
        answers = bytes;
        answers.clear();
    }
}

/// Stores queued appends. Those that wait together are synced together.
async fn write(
    mut segments: Segments,
    mut queue: mpsc::Receiver<Append<Answer>>,
) -> io::Result<()> {
    let (mut records, mut file) = (Records::default(), None);
    while let Some(first) = queue.recv().await {
        let mut batch = records.batch(first, || queue.try_recv().ok());
        if let Some(path) = segments.next() {
            let mut options = OpenOptions::new();
            let options = options.write(true).create(true).truncate(true).custom_flags(DURABLE);
            file = Some(options.open(path).await?);
            segments.sync_names()?;
        }
        let file = file.as_mut().expect("the first batch creates a segment");
        let bytes = std::mem::take(&mut batch.bytes);
        if !bytes.is_empty() {
            let BufResult(written, bytes) = file.write_all_at(bytes, segments.end).await;
            written?;
            segments.end += bytes.len() as u64;
        }
        for (answer, outcome) in batch.answers() {
            // A producer that has left needs no answer.
            _ = answer.send(outcome);
        }
    }
    Ok(())
}
