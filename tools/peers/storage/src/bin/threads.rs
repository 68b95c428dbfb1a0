//! The storage contender with plain threads and blocking calls: file reads with one thread per read
//! in flight, and a log with one thread per connection.

use std::io::{self, Error, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;

use listen::Address;
use peer_storage::log::{self, Append, INPUT, Outcome, Place, QUEUE, Records, Writer};
use peer_storage::{Block, Job, SHORTAGE, Task, announce, ended, task, unserved, whole};

fn main() -> ExitCode {
    let task = match task(&[]) {
        Ok((task, _)) => task,
        Err(code) => return code,
    };
    let ran = match task {
        Task::Reads(reads) => reads.answer(run),
        Task::Log(place) => serve(place),
        Task::Kv(_) => unserved(),
    };
    ran.map_or_else(|error| ended("threads", error), |()| ExitCode::SUCCESS)
}

fn run(job: &Arc<Job>) -> io::Result<()> {
    let file = job.open()?;
    let worker = || {
        let (mut reader, mut block) = (job.reader(), Block::new());
        while let Some(offset) = reader.next()? {
            whole(file.read_at(&mut block.0, offset)?)?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..job.depth).map(|_| scope.spawn(worker)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })
}

/// An answer, with the producer and the sequence.
type Answer = (u64, u64, Outcome);
type Queue = SyncSender<Append<(u64, u64, Sender<Answer>)>>;

fn serve(place: Place) -> io::Result<()> {
    let (queue, appends) = sync_channel(QUEUE);
    thread::spawn(|| {
        let ended_with = write(Writer::new(place.dir), appends);
        ended("threads", ended_with.err().unwrap_or_else(|| Error::other("the log has ended")));
        std::process::exit(1)
    });
    let listener = TcpListener::bind(place.address)?;
    announce(&Address::Tcp(listener.local_addr()?));
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                let queue: Queue = queue.clone();
                thread::spawn(|| producer(stream, queue));
            }
            Err(_) => thread::sleep(SHORTAGE),
        }
    }
}

fn producer(mut stream: TcpStream, queue: Queue) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut input, mut filled, mut answers) = (vec![0; INPUT], 0, Vec::new());
    let (answer, answered) = channel();
    loop {
        if filled == input.len() {
            input.resize(2 * filled, 0);
        }
        match stream.read(&mut input[filled..])? {
            0 => return Ok(()),
            count => filled += count,
        }
        let (mut used, mut waiting) = (0, 0);
        while let Some(request) = log::parse(&input[used..filled])? {
            let answer = (request.producer, request.sequence, answer.clone());
            queue.send(request.append(answer)).map_err(Error::other)?;
            (used, waiting) = (used + request.bytes, waiting + 1);
        }
        input.copy_within(used..filled, 0);
        filled -= used;
        for (producer, sequence, outcome) in answered.iter().take(waiting) {
            log::answer(&mut answers, producer, sequence, outcome);
        }
        stream.write_all(&answers)?;
        answers.clear();
    }
}

/// Stores queued appends. Those that wait together are synced together.
fn write(
    mut writer: Writer,
    queue: Receiver<Append<(u64, u64, Sender<Answer>)>>,
) -> io::Result<()> {
    let mut records = Records::default();
    for first in &queue {
        let batch = records.batch(first, || queue.try_recv().ok());
        writer.store(&batch.bytes)?;
        for ((producer, sequence, answer), outcome) in batch.answers() {
            // A producer that has left needs no answer.
            _ = answer.send((producer, sequence, outcome));
        }
    }
    Ok(())
}
