//! The storage contender on compio, on io_uring and one thread: file reads with a task per read in
//! flight, and a block server with a task per connection. The ring has the flags that compio's
//! documentation recommends.

use std::io::{self, Error};
use std::mem::MaybeUninit;
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;

use compio::BufResult;
use compio::buf::{IntoInner, IoBuf, IoBufExt, IoBufMut, SetLen};
use compio::driver::ProactorBuilder;
use compio::fs::{File, OpenOptions};
use compio::io::{AsyncReadAt, AsyncReadExt, AsyncWriteExt};
use compio::net::{TcpListener, TcpSocket, TcpStream};
use compio::runtime::{Runtime, RuntimeBuilder};
use compio::{runtime, time};
use listen::Address;
use peer_storage::{
    BACKLOG, Block, Job, Kv, REQUEST, SHORTAGE, Task, announce, ended, ring, task, whole,
};

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

async fn serve(kv: Kv) -> io::Result<()> {
    let socket = TcpSocket::new_v4().await?;
    socket.set_reuseaddr(true)?;
    socket.bind(kv.address).await?;
    let listener: TcpListener = socket.listen(BACKLOG).await?;
    announce(&Address::Tcp(listener.local_addr()?));
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
