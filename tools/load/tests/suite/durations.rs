//! `Duration::MAX` and `Duration::ZERO` in every option that takes a duration: each is accepted and
//! works, or is rejected with an error that contains its name.

#[path = "../../../../crates/annulus/tests/common/durations.rs"]
mod sources;

use annulus::net::TcpListener;
use annulus_load::idle::{IdleTracker, sweep_interval};
use annulus_load::{Arrivals, Datagrams, Plan, Rate, Schedule, Streams, ThinkTime, Turns, run};
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

const MAX: Duration = Duration::MAX;
const ZERO: Duration = Duration::ZERO;
const TURN: Duration = Duration::from_millis(20);

#[test]
fn every_duration_is_on_the_list() {
    sources::assert_all_known(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
        &[
            // Set by this crate: a limit that was parsed, and a reading of the clock.
            "condition.rs limit",
            "idle.rs idle_for",
            // Tested in fan_out.rs.
            "fan_out.rs duration",
            "fan_out.rs warm_up",
            "idle.rs new",
            "idle.rs sweep_interval",
            // Each of these sets the field of this name in the plan.
            "options/mod.rs connect_timeout",
            "options/mod.rs duration",
            "options/mod.rs interval",
            "options/mod.rs reply_timeout",
            "options/mod.rs warm_up",
            "plan.rs connect_timeout",
            "plan.rs duration",
            "plan.rs interval",
            "plan.rs length",
            "plan.rs reply_timeout",
            "plan.rs warm_up",
            "schedule/mod.rs Burst",
            "schedule/think.rs Exponential",
            "schedule/think.rs Fixed",
            "schedule/think.rs Uniform",
            // Set by this crate.
            "fan_out.rs elapsed",
            "observer.rs elapsed",
            "observer.rs total",
        ],
    );
}

/// Echoes streams until the process ends.
fn echo_streams() -> SocketAddr {
    let (sender, address) = mpsc::channel();
    thread::spawn(move || {
        annulus::run(async {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            sender.send(listener.local_addr()?).expect("the address is not awaited");
            while let Ok((mut stream, _)) = listener.accept().await {
                annulus::spawn(async move {
                    while let Ok(Some(lease)) = stream.recv().await {
                        if stream.send(lease).await.is_err() {
                            break;
                        }
                    }
                });
            }
            std::io::Result::Ok(())
        })
    });
    address.recv().expect("the server does not listen")
}

/// Echoes datagrams until the process ends.
fn echo_datagrams() -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("no port is free");
    let address = socket.local_addr().expect("the socket has no address");
    thread::spawn(move || {
        let mut buffer = vec![0; 65_536];
        while let Ok((len, peer)) = socket.recv_from(&mut buffer) {
            _ = socket.send_to(&buffer[..len], peer);
        }
    });
    address
}

type SetTime = fn(&mut Plan, Duration);

/// The fields of a plan: the name in errors, how to set the field, whether zero is rejected, and
/// whether `Duration::MAX` is rejected.
const FIELDS: [(&str, SetTime, bool, bool); 11] = [
    ("connect timeout", |plan, time| plan.connect_timeout = time, true, false),
    ("duration", |plan, time| plan.duration = time, true, true),
    ("interval", |plan, time| plan.interval = time, true, true),
    ("reply timeout", |plan, time| plan.reply_timeout = time, true, false),
    ("warm-up", |plan, time| plan.warm_up = time, false, true),
    ("turn", |plan, length| plan.turns = Some(Turns { length, warm_up: ZERO }), true, true),
    ("turn", |plan, warm_up| plan.turns = Some(Turns { length: TURN, warm_up }), false, true),
    ("burst", |plan, time| set_burst(plan, time), true, true),
    ("think time", |plan, time| set_think(plan, ThinkTime::Fixed(time)), false, true),
    ("think time", |plan, time| set_think(plan, ThinkTime::Exponential(time)), false, true),
    ("think time", |plan, time| set_think(plan, ThinkTime::Uniform(ZERO, time)), false, true),
];

fn set_burst(plan: &mut Plan, every: Duration) {
    let rate: Rate = "1000".parse().expect("1000 is not a rate");
    plan.schedule = Schedule::Open { rate, arrivals: Arrivals::Burst(every) };
}

fn set_think(plan: &mut Plan, think: ThinkTime) {
    plan.schedule = Schedule::Closed { think };
}

#[test]
fn plan_accepts_or_rejects_both_durations_by_name() {
    let (streams, datagrams) = (echo_streams(), echo_datagrams());
    for (name, set, zero_is_refused, max_is_refused) in FIELDS {
        for (time, is_refused) in [(ZERO, zero_is_refused), (MAX, max_is_refused)] {
            let mut plans = vec![Plan::new(streams.into(), Streams::default())];
            if !["burst", "think time"].contains(&name) {
                plans.push(Plan::new(datagrams.into(), Datagrams::default()));
            }
            for mut plan in plans {
                (plan.clients, plan.warm_up) = (2, ZERO);
                plan.duration = Duration::from_millis(50);
                set(&mut plan, time);
                if is_refused {
                    let error = plan.validate().unwrap_err().to_string();
                    assert!(error.contains(name), "{name} {time:?}: {error}");
                    assert!(run(&plan, &mut ()).is_err());
                } else {
                    let recording = run(&plan, &mut ()).expect("the load has failed");
                    assert!(recording.summary().requests_per_second > 0.0, "{name} {time:?}");
                }
            }
        }
    }
}

#[test]
fn sweeps_accept_both_durations() {
    for time in [MAX, ZERO] {
        assert!((1..=100).contains(&sweep_interval(time).as_millis()));
        let mut idle = IdleTracker::new(7, time);
        for now in [MAX, ZERO] {
            assert!(idle.idle_for(7, now) <= MAX);
            assert_eq!(idle.idle_for(8, now), ZERO);
            idle = IdleTracker::new(7, time);
        }
    }
}
