//! The storage contender on annulus, on io_uring or, with the mode `epoll`, on epoll: file reads
//! with a task per read in flight, and a block server with a task per connection.

use std::io::{self, Error};
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;

use annulus::fs::{AlignedBuf, File, OpenOptions};
use annulus::net::{ListenOptions, TcpStream};
use annulus::{DriverChoice, Runtime, time};
use listen::Address;
use peer_storage::{
    BACKLOG, BLOCK, Cache, Job, Kv, REQUEST, SHORTAGE, Task, announce, ended, ring, task, unserved,
    whole,
};

fn main() -> ExitCode {
    let (task, mode) = match task(&["epoll"]) {
        Ok(found) => found,
        Err(code) => return code,
    };
    let driver = if mode.is_some() { DriverChoice::Epoll } else { DriverChoice::Uring };
    let mut runtime = ring(Runtime::builder().driver(driver).build());
    let ran = match task {
        Task::Reads(reads) => reads.answer(|job| run(&mut runtime, job)),
        Task::Kv(kv) => runtime.block_on(serve(kv)),
        Task::Log(_) => unserved(),
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
    let file = OpenOptions::new().read(true).direct(kv.direct).open(&kv.path).await?;
    let (file, kv) = (Rc::new(file), Rc::new(kv));
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                annulus::spawn(connection(stream, file.clone(), kv.clone()));
            }
            Err(_) => time::sleep(SHORTAGE).await,
        }
    }
}

async fn connection(mut stream: TcpStream, file: Rc<File>, kv: Rc<Kv>) -> io::Result<()> {
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
