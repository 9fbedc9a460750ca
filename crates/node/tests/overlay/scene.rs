//! `n0`, whose overlay runs, `n1`, to which its links lead, and the oracle that `n0` tells.

pub use crate::members::key;

use crate::{
    members::{ANYWHERE, config, member, membership, name, nothing, reach, served, signed},
    oracle::Fake,
};
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tempfile::TempDir;
use thalweg_measure::train::Calibration;
use thalweg_node::{
    budget::Budget,
    daemon::{Daemon, Services},
    mesh::{Membership, OracleClient, WallClock},
    overlay::{Overlay, OverlayCounts, OverlayRun},
    prober::{Prober, Purse},
    relay::Log,
    trains::{Carries, Endpoint, Riders, Trains},
};
use thalweg_units::{ByteSize, NodeId, Rate};
use thalweg_wire::mesh::Name;
use tokio::task::JoinSet;

/// Whatever is waited for comes sooner, on the busiest machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A day's bytes.
pub const PER_DAY: u64 = 1 << 34;

/// A host that keeps gaps, whatever the machine of this test does; slow enough for it.
pub fn calm() -> Calibration {
    let us = Duration::from_micros;
    Calibration {
        send_latency: us(3),
        receive_latency: us(3),
        gap_error: [us(1), us(50)],
        honest: Rate::from_mbps(20.0),
        is_valid: true,
    }
}

/// One that does not.
pub fn busy() -> Calibration {
    let gap_error = [Duration::from_micros(300), Duration::from_millis(7)];
    Calibration { gap_error, honest: Rate::ZERO, is_valid: false, ..calm() }
}

/// An overlay that hardly waits, and takes what this machine can tell.
pub fn quick() -> OverlayRun {
    let pause = Duration::from_millis(20);
    OverlayRun { pause, accepts_busy: true, ..OverlayRun::default() }
}

/// No oracle orders anything here.
pub fn signed_ticket(_: u64, _: u8, _: u8) -> String {
    unreachable!("nothing is ordered")
}

/// What programs of `n0` do.
#[derive(Clone, Copy, PartialEq)]
pub enum Host {
    /// They send to `n1` by the carrier.
    Uses,
    /// Nothing.
    Idles,
}

/// Counts of a carrier, without one.
#[derive(Debug, Default)]
struct Sends(AtomicU64);

impl Carries for Sends {
    fn riders(&self, _: NodeId) -> Option<Arc<dyn Riders>> {
        None
    }

    /// A megabyte more each time.
    fn sent(&self) -> Vec<(Name, u64)> {
        vec![(name(1), self.0.fetch_add(1_000_000, Ordering::Relaxed) + 1_000_000)]
    }

    fn report(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
}

/// All of it; it ends when it is dropped.
pub struct Scene {
    pub oracle: Fake,
    pub counts: OverlayCounts,
    pub purse: Arc<Purse>,
    far: JoinSet<()>,
    _tasks: JoinSet<()>,
    _dirs: [TempDir; 2],
}

impl Scene {
    /// With both hosts as calibrated so.
    pub async fn start(host: Host, is: Calibration, run: OverlayRun) -> Self {
        let (dirs, oracle) =
            ([TempDir::new().unwrap(), TempDir::new().unwrap()], Fake::start().await);
        let (mut tasks, mut far) = (JoinSet::new(), JoinSet::new());
        let members = [membership(), membership()];
        let (log, told) = Log::to_queue();
        // What went wrong is in the output of a test that failed.
        std::thread::spawn(move || told.into_iter().for_each(|event| println!("{event:?}")));
        let who = (name(0), &key(0));
        let purse = Purse::new(Arc::new(Budget::new()), ByteSize::from_bytes(PER_DAY));
        let prober = Prober::new(who, members[0].clone(), purse, None, log.clone()).unwrap();
        let purse = prober.purse();
        let near_trains = Trains::new(Arc::clone(&purse), log.clone());
        let far_purse = Purse::new(Arc::new(Budget::new()), ByteSize::from_bytes(PER_DAY));
        let far_trains = Trains::new(Arc::new(far_purse), log.clone());
        let at = [
            serve(0, &members[0], &near_trains, is, &dirs[0], &mut tasks).await,
            serve(1, &members[1], &far_trains, is, &dirs[1], &mut far).await,
        ];
        if host == Host::Uses {
            near_trains.carry_for(Arc::new(Sends::default()));
        }
        let all = vec![member(0, Some(at[0]), &[]), member(1, Some(at[1]), &[])];
        members.iter().for_each(|one| _ = one.offer(&signed(1, all.clone())).unwrap());
        let reach = reach(0, &key(0), &members[0]);
        let overlay = Overlay::new(run, prober.clone(), near_trains, reach, log);
        let counts = overlay.counts();
        tasks.spawn(overlay.run());
        let client = OracleClient::new(&key(0), vec![oracle.oracle()], WallClock::default());
        tasks.spawn(prober.run(client.unwrap(), None));
        Self { oracle, counts, purse, far, _tasks: tasks, _dirs: dirs }
    }

    /// `n1` is gone.
    pub async fn far_leaves(&mut self) {
        self.far.shutdown().await;
    }

    /// Waits until the counts are so.
    pub async fn until(&self, what: &str, is_so: impl Fn(&serde_json::Value) -> bool) {
        let waits = async {
            while !is_so(&self.counts.report()) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let came = tokio::time::timeout(PATIENCE, waits).await;
        came.unwrap_or_else(|_| panic!("{what}: {}", self.counts.report()));
    }
}

/// A daemon that takes trains.
async fn serve(
    n: u8,
    membership: &Membership,
    trains: &Trains,
    is: Calibration,
    dir: &TempDir,
    tasks: &mut JoinSet<()>,
) -> SocketAddr {
    trains.calibrated_as(is);
    let services = Services { probe: Some(Arc::new(trains.clone())), ..nothing() };
    let served = served(n, membership, services);
    let daemon = Daemon::bind(config(ANYWHERE, dir.path()), served).await.unwrap();
    let at = daemon.local_addrs()[0];
    let endpoint = Arc::new(Endpoint::bind(ANYWHERE).await.unwrap());
    trains.receive_at(vec![Arc::clone(&endpoint)]);
    tasks.spawn(async move { endpoint.run().await });
    tasks.spawn(async move {
        daemon.run(std::future::pending(), std::future::pending()).await;
    });
    at
}
