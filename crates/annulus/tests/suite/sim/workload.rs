//! The workload of a run: a server and its clients, and what each of them does.

use crate::sim::datagrams;
use crate::sim::faulty::run_faulty_tasks;
use crate::sim::foreign::Bomb;
use crate::sim::plan::{Exchange, Plan, StreamPlan};
use crate::sim::reader::{End, Reader, pattern};
use crate::sim::run::{Run, joined};
use crate::sim::seeds::Totals;
use crate::sim::writer::Writer;
use annulus::net::{ListenOptions, TcpListener, TcpStream};
use annulus::sim::run_on;
use annulus::spawn;
use annulus::task::JoinHandle;
use std::io;
use std::mem::forget;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind};

/// Runs a plan, checks that it leaves nothing behind, and returns the hash of its trace.
pub(crate) fn run(plan: &Plan, totals: &mut Totals) -> u64 {
    let sim = plan.sim();
    let run = Run::new(plan);
    let root = run.clone();
    let ran = AssertUnwindSafe(|| run_on(&sim, plan.runtime(), async move { main(&root).await }));
    match catch_unwind(ran) {
        Ok(Ok(())) => {}
        Ok(Err(error)) => panic!("seed {}: {error}\n{plan:#?}\n{sim:?}", plan.seed),
        Err(payload) if run.is_finished() => forget(payload),
        Err(payload) => resume_unwind(payload),
    }
    run.drop_kept();
    sim.check();
    assert_eq!(sim.leftovers(), [""; 0], "seed {}: something was left behind", plan.seed);
    assert_eq!(run.tally().left(), 0, "seed {}: a faulty value was not dropped", plan.seed);
    assert_eq!((sim.open_descriptors(), sim.buffers_held()), (0, 0), "seed {}", plan.seed);
    let counts = sim.counts();
    *totals += Totals {
        runs: 1,
        operations: counts.submitted,
        faults: counts.faults,
        bytes: run.bytes(),
        datagrams: run.datagrams(),
        cancels: run.cancels(),
        panics: run.tally().made(),
    };
    sim.trace_hash()
}

/// The root future.
async fn main(run: &Run) -> io::Result<()> {
    let listener = listen(run).await;
    let address = listener.local_addr()?;
    run.start(serve(run.clone(), listener));
    run.start(drop_listener(run.clone()));
    for number in 0..run.plan().streams.len() {
        run.start(run_client(run.clone(), number, address));
        run.pause().await;
    }
    start_datagrams(run).await?;
    drop(spawn(run_faulty_tasks(run.clone(), address)));
    // Tasks that the latch does not count, such as the pending accept, end with the runtime.
    run.latch().wait().await?;
    run.finish();
    if run.plan().root_panics {
        panic_any(Bomb);
    }
    Ok(())
}

/// Starts a datagram server and its clients, and pairs of Unix sockets.
async fn start_datagrams(run: &Run) -> io::Result<()> {
    let server = datagrams::open(run).await;
    let address = server.local_addr()?;
    run.start(datagrams::echo(run.clone(), server));
    for &plan in &run.plan().udp_clients {
        run.start(datagrams::run_udp_client(run.clone(), plan, address));
    }
    for &plan in &run.plan().unix_pairs {
        run.start(datagrams::run_unix_pair(run.clone(), plan));
    }
    Ok(())
}

/// Drops a listener at some point while clients connect.
async fn drop_listener(run: Run) -> io::Result<()> {
    let listener = listen(&run).await;
    let address = listener.local_addr()?;
    for _ in 0..run.below(4) {
        let client = run.clone();
        spawn(async move { client.give_up(TcpStream::connect(address)).await.map(drop) });
        drop(run.give_up(listener.accept()).await);
    }
    Ok(())
}

/// Opens a listener as soon as a descriptor is available.
async fn listen(run: &Run) -> TcpListener {
    let options = ListenOptions::new().backlog(run.plan().backlog);
    loop {
        match options.clone().bind("127.0.0.1:0") {
            Ok(listener) => return listener,
            Err(_) => run.pause().await,
        }
    }
}

async fn serve(run: Run, listener: TcpListener) -> io::Result<()> {
    loop {
        let (stream, _) = run.insist(async || listener.accept().await).await?;
        run.start(serve_one(run.clone(), stream));
    }
}

/// Runs the server's end of a connection.
async fn serve_one(run: Run, stream: TcpStream) -> io::Result<()> {
    let (half, other) = stream.into_split();
    let (mut reader, writer) = (Reader::new(&run, half), Writer::new(&run, other));
    // Some clients send no number, for example after they gave up connecting.
    let Ok(Some(number)) = reader.number().await else { return Ok(()) };
    let plan = run.stream_plan(number as usize);
    match plan.exchange {
        Exchange::Echo | Exchange::Pieces => echo(&run, reader, writer).await?,
        Exchange::Both => answer(&run, reader, writer, plan).await?,
        Exchange::SendOnly => reader.whole(plan.key, plan.up).await?,
        Exchange::Reset => match reader.up_to(plan.key, 0, u64::MAX).await? {
            (_, End::Reset) => {}
            (received, End::Clean) => {
                let text = format!("a clean end after {received} bytes of a stream that was reset");
                return Err(io::Error::other(text));
            }
        },
        Exchange::AbortTask => drop(reader.up_to(plan.key, 0, u64::MAX).await?),
    }
    if plan.exchange.is_complete() {
        run.latch().count_down();
    }
    Ok(())
}

/// Echoes the received bytes, lease by lease or with copies.
async fn echo(run: &Run, mut reader: Reader, mut writer: Writer) -> io::Result<()> {
    if run.below(2) == 0 {
        reader.copy_to(&mut writer).await?;
    } else {
        while let Some(lease) = reader.next().await? {
            writer.send(lease).await?;
        }
    }
    writer.end().await
}

/// Sends and receives at the same time.
async fn answer(
    run: &Run,
    mut reader: Reader,
    mut writer: Writer,
    plan: StreamPlan,
) -> io::Result<()> {
    let sends = spawn(async move {
        writer.whole(plan.key | 1, plan.down).await?;
        writer.end().await
    });
    reader.whole(plan.key, plan.up).await?;
    run.pause().await;
    joined(sends).await
}

/// Runs a client until it has done its part or its task has been aborted.
async fn run_client(run: Run, number: usize, address: SocketAddr) -> io::Result<()> {
    let client = client(run.clone(), number, address);
    match run.stream_plan(number).exchange {
        Exchange::AbortTask => abort(&run, spawn(client)).await?,
        _ => client.await?,
    }
    run.latch().count_down();
    Ok(())
}

/// Runs the client's end of a connection.
async fn client(run: Run, number: usize, address: SocketAddr) -> io::Result<()> {
    let plan = run.stream_plan(number);
    let mut stream = connect(&run, address).await;
    stream.send((number as u32).to_le_bytes().to_vec()).await?;
    if plan.exchange == Exchange::Reset {
        return reset(&run, stream, plan).await;
    }
    let (half, other) = stream.into_split();
    let (reader, mut writer) = (Reader::new(&run, half), Writer::new(&run, other));
    match plan.exchange {
        Exchange::Echo => exchange(reader, writer, plan, (plan.key, plan.up)).await,
        Exchange::Both => exchange(reader, writer, plan, (plan.key | 1, plan.down)).await,
        Exchange::Pieces => exchange_pieces(&run, reader, writer, plan).await,
        Exchange::SendOnly | Exchange::Reset | Exchange::AbortTask => {
            writer.whole(plan.key, plan.up).await
        }
    }
}

/// Connects as soon as enough memory and descriptors are available.
async fn connect(run: &Run, address: SocketAddr) -> TcpStream {
    loop {
        match run.insist(async || TcpStream::connect(address).await).await {
            Ok(stream) => return stream,
            Err(_) => run.pause().await,
        }
    }
}

/// Sends a payload while receiving another one.
async fn exchange(
    mut reader: Reader,
    mut writer: Writer,
    plan: StreamPlan,
    (key, len): (u64, u64),
) -> io::Result<()> {
    let receives = spawn(async move { reader.whole(key, len).await });
    writer.whole(plan.key, plan.up).await?;
    writer.end().await?;
    joined(receives).await
}

/// Sends a piece and receives its echo before sending the next one. A piece fits in the buffers of
/// the smallest network. Otherwise, the client would wait to send while the server waits to echo.
async fn exchange_pieces(
    run: &Run,
    mut reader: Reader,
    mut writer: Writer,
    plan: StreamPlan,
) -> io::Result<()> {
    let mut at = 0;
    while at < plan.up {
        let most = run.plan().write.min(plan.up - at).min(1000);
        let end = at + run.between(1, most);
        writer.write(pattern(plan.key, at, end - at)).await?;
        if reader.up_to(plan.key, at, end).await? != (end, End::Clean) {
            return Err(io::Error::other(format!("no answer to the bytes {at} to {end}")));
        }
        at = end;
    }
    Ok(())
}

/// Resets the connection somewhere in the payload.
async fn reset(run: &Run, mut stream: TcpStream, plan: StreamPlan) -> io::Result<()> {
    _ = run.give_up(stream.send(pattern(plan.key, 0, plan.up))).await;
    run.pause().await;
    stream.abort();
    Ok(())
}

/// Aborts a client's task at some point.
async fn abort(run: &Run, task: JoinHandle<io::Result<()>>) -> io::Result<()> {
    run.pause().await;
    task.abort();
    match task.await {
        Ok(outcome) => outcome,
        Err(error) if error.is_cancelled() => Ok(()),
        Err(panicked) => Err(panicked.into()),
    }
}
