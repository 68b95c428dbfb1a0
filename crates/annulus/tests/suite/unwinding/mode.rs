//! The drivers and kernels that a test runs on: io_uring, epoll and the simulated kernel.

use annulus::sim::Sim;
use annulus::{Builder, DriverChoice, Runtime};
use annulus_ring::Features;
use annulus_skip::skip;
use std::future::Future;
use std::io;
use std::rc::Rc;
use std::time::Duration;

/// A runtime, and its kernel if that is simulated.
pub(crate) struct Stage {
    pub(crate) runtime: Runtime,
    sim: Option<Rc<Sim>>,
}

impl Stage {
    /// Runs a part of the test.
    pub(crate) fn play<T>(&mut self, future: impl Future<Output = io::Result<T>>) -> T {
        self.runtime.block_on(future).expect("a step of the test failed")
    }

    /// Ends the runtime, and checks that everything was given back.
    pub(crate) fn end(self) {
        let Self { runtime, sim } = self;
        drop(runtime);
        nothing_left(sim.as_deref());
    }

    pub(crate) fn into_parts(self) -> (Runtime, Option<Rc<Sim>>) {
        (self.runtime, self.sim)
    }
}

/// Checks that an ended runtime has left nothing in a simulated kernel.
pub(crate) fn nothing_left(sim: Option<&Sim>) {
    if let Some(sim) = sim {
        sim.check();
        assert_eq!(sim.leftovers(), [""; 0]);
        assert_eq!((sim.open_descriptors(), sim.buffers_held()), (0, 0));
    }
}

/// Runs a test on each driver and kernel.
pub(crate) fn everywhere(test: impl Fn(Stage)) {
    on_rings(Runtime::builder, &test);
    test(Stage { runtime: build(Runtime::builder().driver(DriverChoice::Epoll)), sim: None });
}

/// Runs a test with these settings on io_uring and on the simulated kernel.
pub(crate) fn on_rings(settings: impl Fn() -> Builder, test: impl Fn(Stage)) {
    let builder = || settings().driver(DriverChoice::Uring);
    if Features::detect().is_ok_and(|features| features.has("zero-copy sendmsg")) {
        test(Stage { runtime: build(builder()), sim: None });
    } else {
        skip!("io_uring is blocked here, or older than 6.1");
    }
    let sim = Sim::builder(1).build();
    let runtime = build(builder().kernel(sim.clone()));
    test(Stage { runtime, sim: Some(sim) });
}

fn build(builder: Builder) -> Runtime {
    let short = Duration::from_millis(50);
    builder.shutdown_timeout(short).linger(short).build().expect("no runtime can be built")
}
