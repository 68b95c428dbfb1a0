//! The storage contender on annulus, on io_uring or, with the mode `epoll`, on epoll: file reads
//! with a task per read in flight, and a block server with a task per connection. With the mode
//! `shards`, the block server has a shard on each CPU that the process may use.

use std::io::{self, Error};
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;

use annulus::fs::{AlignedBuf, File, OpenOptions};
use annulus::net::{ListenOptions, TcpStream};
use annulus::shards::{ShardedListener, Spread, cpus};
use annulus::{DriverChoice, Runtime, shards, time};
use listen::Address;
use peer_storage::{
    BACKLOG, BLOCK, Cache, Job, Kv, REQUEST, SHORTAGE, Task, announce, ended, ring, task, unserved,
    whole,
};

fn main() -> ExitCode {
    let (task, mode) = match task(&["epoll", "shards"]) {
        Ok(found) => found,
        Err(code) => return code,
    };
    let runtime = || {
        let is_epoll = mode.as_deref() == Some("epoll");
        let driver = if is_epoll { DriverChoice::Epoll } else { DriverChoice::Uring };
        ring(Runtime::builder().driver(driver).build())
    };
    let ran = match (task, mode.as_deref()) {
        (Task::Kv(kv), Some("shards")) => serve_on_shards(kv),
        (Task::Kv(kv), _) => runtime().block_on(serve(kv)),
        (_, Some("shards")) | (Task::Log(_), _) => unserved(),
        (Task::Reads(reads), _) => {
            let mut runtime = runtime();
            reads.answer(|job| run(&mut runtime, job))
        }
    };
    ran.map_or_else(|error| ended("annulus", error), |()| ExitCode::SUCCESS)
}

fn run(runtime: &mut Runtime, job: &Arc<Job>) -> io::Result<()> {
    runtime.block_on(async {
        let options = OpenOptions::new().read(true).direct(job.cache == Cache::Direct);
        let file = Rc::new(options.open(&job.path).await?);
        let read = |job: Arc<Job>, file: Rc<File>| async move {
            let (mut reader, mut block) = (job.reader(), AlignedBuf::new(BLOCK, BLOCK)?);
            while let Some(offset) = reader.next()? {
                let read;
                (read, block) = file.read_at(block, offset).await;
                whole(read?)?;
            }
            io::Result::Ok(())
        };
        let tasks = (0..job.depth).map(|_| annulus::spawn(read(job.clone(), file.clone())));
        for task in tasks.collect::<Vec<_>>() {
            task.await.map_err(|error| Error::other(error.to_string()))??;
        }
        Ok(())
    })
}

async fn serve(kv: Kv) -> io::Result<()> {
    let listener = ListenOptions::new().backlog(BACKLOG as u32).bind(kv.address)?;
    announce(&Address::Tcp(listener.local_addr()?));
    let (file, kv) = (open(&kv).await?, Arc::new(kv));
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                annulus::spawn(connection(stream, file.clone(), kv.clone()));
            }
            Err(_) => time::sleep(SHORTAGE).await,
        }
    }
}

fn serve_on_shards(kv: Kv) -> io::Result<()> {
    let count = cpus()?.len();
    let options = ListenOptions::new().backlog(BACKLOG as u32);
    let listener = ShardedListener::bind(kv.address, &options, count, Spread::LeastConnections)?;
    announce(&Address::Tcp(listener.local_addr()));
    let kv = Arc::new(kv);
    shards(count, async |shard| {
        let (mut listener, file) = (listener.open(&shard)?, open(&kv).await?);
        while let Some((stream, _)) = listener.accept().await? {
            annulus::spawn(connection(stream, file.clone(), kv.clone()));
        }
        io::Result::Ok(())
    })?;
    Ok(())
}

async fn open(kv: &Kv) -> io::Result<Rc<File>> {
    let options = OpenOptions::new().read(true).direct(kv.direct);
    options.open(&kv.path).await.map(Rc::new)
}

async fn connection(mut stream: TcpStream, file: Rc<File>, kv: Arc<Kv>) -> io::Result<()> {
    let mut block = AlignedBuf::new(BLOCK, BLOCK)?;
    loop {
        let offset = kv.offset(&stream.recv_exact(REQUEST).await?)?;
        let read;
        (read, block) = file.read_at(block, offset).await;
        whole(read?)?;
        for piece in 0..kv.pieces {
            stream.write_all(&block[kv.piece(piece)]).await?;
        }
    }
}
