//! The play: a server, its clients, and what each of them does.

use crate::faulty::disturb;
use crate::foreign::Bomb;
use crate::letters;
use crate::pen::Pen;
use crate::plan::{Manner, Plan, Script};
use crate::reader::{End, Reader, stretch};
use crate::scene::{Scene, joined};
use crate::seeds::Totals;
use annulus::net::{ListenOptions, TcpListener, TcpStream};
use annulus::sim::run_on;
use annulus::{JoinError, JoinHandle, spawn};
use std::io;
use std::mem::forget;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind};

/// Runs a plan, looks behind it, and answers the trace.
pub(crate) fn run(plan: &Plan, totals: &mut Totals) -> u64 {
    let sim = plan.sim();
    let scene = Scene::new(plan);
    let play = scene.clone();
    let ran =
        AssertUnwindSafe(|| run_on(&sim, plan.runtime(), async move { perform(&play).await }));
    match catch_unwind(ran) {
        Ok(Ok(())) => {}
        Ok(Err(error)) => panic!("seed {}: {error}\n{plan:#?}\n{sim:?}", plan.seed),
        Err(payload) if scene.is_finished() => forget(payload),
        Err(payload) => resume_unwind(payload),
    }
    scene.let_go();
    sim.check();
    assert_eq!(sim.leftovers(), [""; 0], "seed {}: something was left behind", plan.seed);
    assert_eq!(scene.tally().left(), 0, "seed {}: a faulty value was not dropped", plan.seed);
    assert_eq!((sim.open_descriptors(), sim.buffers_held()), (0, 0), "seed {}", plan.seed);
    let counts = sim.counts();
    *totals += Totals {
        runs: 1,
        operations: counts.submitted,
        faults: counts.faults,
        bytes: scene.bytes(),
        letters: scene.letters(),
        cancels: scene.cancels(),
        panics: scene.tally().made(),
    };
    sim.trace_hash()
}

async fn perform(scene: &Scene) -> io::Result<()> {
    let listener = listen(scene).await;
    let address = listener.local_addr()?;
    scene.act(serve(scene.clone(), listener));
    scene.act(passing(scene.clone()));
    for number in 0..scene.plan().scripts.len() {
        scene.act(take_part(scene.clone(), number, address));
        scene.pause().await;
    }
    write_letters(scene).await?;
    drop(spawn(disturb(scene.clone(), address)));
    // What goes on behind the gate, the accept for one, ends with the runtime.
    scene.gate().open().await?;
    scene.finish();
    if scene.plan().root_panics {
        panic_any(Bomb);
    }
    Ok(())
}

/// A server of datagrams, and its clients.
async fn write_letters(scene: &Scene) -> io::Result<()> {
    let server = letters::open(scene).await;
    let address = server.local_addr()?;
    scene.act(letters::send_back(scene.clone(), server));
    for &part in &scene.plan().correspondences {
        scene.act(letters::correspond(scene.clone(), part, address));
    }
    for &part in &scene.plan().whispers {
        scene.act(letters::whisper(scene.clone(), part));
    }
    Ok(())
}

/// A listener that goes at any moment, while somebody connects.
async fn passing(scene: Scene) -> io::Result<()> {
    let listener = listen(&scene).await;
    let address = listener.local_addr()?;
    for _ in 0..scene.below(4) {
        let visitor = scene.clone();
        spawn(async move { visitor.give_up(TcpStream::connect(address)).await.map(drop) });
        drop(scene.give_up(listener.accept()).await);
    }
    Ok(())
}

/// A listener, as soon as there is a descriptor for one.
async fn listen(scene: &Scene) -> TcpListener {
    let options = ListenOptions::new().backlog(scene.plan().backlog);
    loop {
        match options.clone().bind("127.0.0.1:0") {
            Ok(listener) => return listener,
            Err(_) => scene.pause().await,
        }
    }
}

async fn serve(scene: Scene, listener: TcpListener) -> io::Result<()> {
    loop {
        let (stream, _) = scene.insist(async || listener.accept().await).await?;
        scene.act(session(scene.clone(), stream));
    }
}

/// The server's side of a connection.
async fn session(scene: Scene, stream: TcpStream) -> io::Result<()> {
    let (half, other) = stream.split();
    let (mut reader, pen) = (Reader::new(&scene, half), Pen::new(&scene, other));
    // One that gave up connecting, or vanished before its first word.
    let Ok(Some(number)) = reader.name().await else { return Ok(()) };
    let script = scene.script(number as usize);
    match script.manner {
        Manner::Echo | Manner::Ask => echo(reader, pen).await?,
        Manner::Both => answer(&scene, reader, pen, script).await?,
        Manner::Leave => reader.whole(script.key, script.up).await?,
        Manner::Abort => match reader.up_to(script.key, 0, u64::MAX).await? {
            (_, End::Reset) => {}
            (heard, End::Clean) => {
                let text = format!("a clean end after {heard} bytes of an aborted stream");
                return Err(io::Error::other(text));
            }
        },
        Manner::Vanish => drop(reader.up_to(script.key, 0, u64::MAX).await?),
    }
    if script.manner.is_complete() {
        scene.gate().count();
    }
    Ok(())
}

async fn echo(mut reader: Reader, mut pen: Pen) -> io::Result<()> {
    while let Some(lease) = reader.next().await? {
        pen.pass_on(lease).await?;
    }
    pen.end().await
}

/// Speaks and listens at once.
async fn answer(scene: &Scene, mut reader: Reader, mut pen: Pen, script: Script) -> io::Result<()> {
    let speaking = spawn(async move {
        pen.whole(script.key | 1, script.down).await?;
        pen.end().await
    });
    reader.whole(script.key, script.up).await?;
    scene.pause().await;
    joined(speaking).await
}

/// A client, from its first word to its last or its sudden end.
async fn take_part(scene: Scene, number: usize, address: SocketAddr) -> io::Result<()> {
    let client = client(scene.clone(), number, address);
    match scene.script(number).manner {
        Manner::Vanish => vanish(&scene, spawn(client)).await?,
        _ => client.await?,
    }
    scene.gate().count();
    Ok(())
}

/// The client's side of a connection.
async fn client(scene: Scene, number: usize, address: SocketAddr) -> io::Result<()> {
    let script = scene.script(number);
    let mut stream = connect(&scene, address).await;
    stream.send((number as u32).to_le_bytes().to_vec()).await?;
    if script.manner == Manner::Abort {
        return abort(&scene, stream, script).await;
    }
    let (half, other) = stream.split();
    let (reader, mut pen) = (Reader::new(&scene, half), Pen::new(&scene, other));
    match script.manner {
        Manner::Echo => speak(reader, pen, script, (script.key, script.up)).await,
        Manner::Both => speak(reader, pen, script, (script.key | 1, script.down)).await,
        Manner::Ask => ask(&scene, reader, pen, script).await,
        Manner::Leave | Manner::Abort | Manner::Vanish => pen.whole(script.key, script.up).await,
    }
}

/// A connection, as soon as memory, descriptors and patience suffice for one.
async fn connect(scene: &Scene, address: SocketAddr) -> TcpStream {
    loop {
        match scene.insist(async || TcpStream::connect(address).await).await {
            Ok(stream) => return stream,
            Err(_) => scene.pause().await,
        }
    }
}

/// Says its text, and expects another one meanwhile.
async fn speak(
    mut reader: Reader,
    mut pen: Pen,
    script: Script,
    (key, len): (u64, u64),
) -> io::Result<()> {
    let listening = spawn(async move { reader.whole(key, len).await });
    pen.whole(script.key, script.up).await?;
    pen.end().await?;
    joined(listening).await
}

/// Says a piece, and hears it again before it says the next. The piece fits the smallest of networks: who only speaks
/// to one who only speaks back waits for ever.
async fn ask(scene: &Scene, mut reader: Reader, mut pen: Pen, script: Script) -> io::Result<()> {
    let mut place = 0;
    while place < script.up {
        let most = scene.plan().write.min(script.up - place).min(1000);
        let end = place + scene.between(1, most);
        pen.write(stretch(script.key, place, end - place)).await?;
        if reader.up_to(script.key, place, end).await? != (end, End::Clean) {
            return Err(io::Error::other(format!("no answer to the bytes {place} to {end}")));
        }
        place = end;
    }
    Ok(())
}

/// Breaks off in the middle.
async fn abort(scene: &Scene, mut stream: TcpStream, script: Script) -> io::Result<()> {
    _ = scene.give_up(stream.send(stretch(script.key, 0, script.up))).await;
    scene.pause().await;
    stream.abort();
    Ok(())
}

/// Ends a client's task at any moment.
async fn vanish(scene: &Scene, mut task: JoinHandle<io::Result<()>>) -> io::Result<()> {
    scene.pause().await;
    task.abort();
    match task.await {
        Ok(outcome) => outcome,
        Err(JoinError::Aborted) => Ok(()),
        Err(panicked) => Err(io::Error::other(panicked.to_string())),
    }
}
