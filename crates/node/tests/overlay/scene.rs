//! `n0`, which runs the overlay; `n1`, to which its links lead; and the oracle to which `n0` reports.

pub use crate::{
    calm::{Sends, calm, quick},
    members::key,
};

use crate::{
    members::{ANYWHERE, config, dialer, member, membership, name, nothing, served, signed},
    oracle::Fake,
};
use futures_util::future::BoxFuture;
use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};
use tempfile::TempDir;
use thalweg_base::{
    budget::Budget,
    clock::WallClock,
    log::{Log, LogFormat},
};
use thalweg_measure::train::Calibration;
use thalweg_mesh::{
    Membership, MeshPeer, OracleClient, member_dialer::MemberDialer, service::MemberService,
};
use thalweg_net::channel::{Channel, Protocol};
use thalweg_net::legs::Legs;
use thalweg_node::daemon::{Daemon, Node as Served, Services};
use thalweg_probe::{
    overlay::{Overlay, OverlayCounts, OverlayRunSettings},
    prober::{ProbeBudget, Prober},
    trains::{Endpoint, Trains},
};
use thalweg_units::{ByteSize, Rate};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
};

/// Longer than any wait on the busiest machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// The bytes of a day.
pub const PER_DAY: u64 = 1 << 34;

/// A host that does not keep gaps.
pub fn busy() -> Calibration {
    let gap_error = [Duration::from_micros(300), Duration::from_millis(7)];
    Calibration { gap_error, honest: Rate::ZERO, is_valid: false, ..calm() }
}

/// The oracle orders nothing here.
pub fn signed_ticket(_: u64, _: u8, _: u8) -> String {
    unreachable!("nothing is ordered")
}

/// What `n0` does.
#[derive(Clone, Copy, PartialEq)]
pub enum Host {
    /// Its programs send to `n1` over the carrier.
    Uses,
    /// Its daemon serves `n1` files.
    Serves,
    Idles,
}

/// Serves a megabyte on each channel.
#[derive(Debug)]
struct Pours;

impl MemberService for Pours {
    fn serve(
        &self,
        mut channel: Channel<TcpStream>,
        _: MeshPeer,
        _: SocketAddr,
    ) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            channel.write_all(&[7; POURED]).await.unwrap();
            channel.shutdown().await.unwrap();
            // The end of the channel shows that all bytes have arrived.
            _ = channel.read_u8().await;
        })
    }
}

/// Bytes that `n0` serves.
const POURED: usize = 1_000_000;

/// Makes `n0` serve `n1`, again and again.
async fn fetch_often(dialer: MemberDialer) {
    loop {
        let mut channel = dialer.channel(&name(0), &[], Protocol::Object).await.unwrap();
        let mut came = Vec::new();
        channel.read_to_end(&mut came).await.unwrap();
        assert_eq!(came.len(), POURED);
    }
}

/// The whole scene; it ends when it is dropped.
pub struct Scene {
    pub oracle: Fake,
    pub counts: OverlayCounts,
    pub purse: Arc<ProbeBudget>,
    /// The methods of the overlay's measurements, by their names in the log.
    hows: Arc<Mutex<Vec<String>>>,
    far: JoinSet<()>,
    _tasks: JoinSet<()>,
    _dirs: [TempDir; 2],
}

impl Scene {
    /// Starts both hosts with this calibration.
    pub async fn start(host: Host, is: Calibration, run: OverlayRunSettings) -> Self {
        let (dirs, oracle) =
            ([TempDir::new().unwrap(), TempDir::new().unwrap()], Fake::start().await);
        let (mut tasks, mut far) = (JoinSet::new(), JoinSet::new());
        let members = [membership(), membership()];
        let (log, told) = Log::to_queue();
        let hows = Arc::<Mutex<Vec<String>>>::default();
        let noted = Arc::clone(&hows);
        // The output of a failed test shows what went wrong.
        std::thread::spawn(move || {
            for event in told {
                println!("{event:?}");
                noted.lock().unwrap().push(event.line(LogFormat::Text));
            }
        });
        let who = (name(0), &key(0));
        let purse = ProbeBudget::new(Arc::new(Budget::new()), ByteSize::from_bytes(PER_DAY));
        let prober = Prober::new(who, members[0].clone(), purse, None, log.clone()).unwrap();
        let purse = prober.probe_budget();
        let near_trains = Trains::new(Arc::clone(&purse), log.clone());
        let far_purse = ProbeBudget::new(Arc::new(Budget::new()), ByteSize::from_bytes(PER_DAY));
        let far_trains = Trains::new(Arc::new(far_purse), log.clone());
        let legs = Legs::default();
        prober.observe_transfers(legs.clone(), true);
        let at = [
            serve(0, (&members[0], Some(legs)), &near_trains, is, &dirs[0], &mut tasks).await,
            serve(1, (&members[1], None), &far_trains, is, &dirs[1], &mut far).await,
        ];
        if host == Host::Uses {
            near_trains.set_carrier(Arc::new(Sends::to(name(1))));
        }
        let all = vec![member(0, Some(at[0]), &[]), member(1, Some(at[1]), &[])];
        members.iter().for_each(|one| _ = one.offer(&signed(1, all.clone())).unwrap());
        let dialer = dialer(0, &key(0), &members[0]);
        if host == Host::Serves {
            far.spawn(fetch_often(crate::members::dialer(1, &key(1), &members[1])));
        }
        let overlay = Overlay::new(run, prober.clone(), near_trains, dialer, log);
        let counts = overlay.counts();
        tasks.spawn(overlay.run());
        let client = OracleClient::new(&key(0), vec![oracle.oracle()], WallClock::default());
        tasks.spawn(prober.run(client.unwrap(), None));
        Self { oracle, counts, purse, hows, far, _tasks: tasks, _dirs: dirs }
    }

    /// Stops `n1`.
    pub async fn far_leaves(&mut self) {
        self.far.shutdown().await;
    }

    /// Waits until a link was measured with this method.
    pub async fn until_by(&self, how: &str) {
        let word = format!("how={how}");
        let was = |line: &String| line.contains(&word) && line.contains("bps=");
        self.until(how, |_| self.hows.lock().unwrap().iter().any(was)).await;
    }

    /// Waits until `is_so` holds for the counters.
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

/// A daemon that accepts trains.
async fn serve(
    n: u8,
    (membership, legs): (&Membership, Option<Legs>),
    trains: &Trains,
    is: Calibration,
    dir: &TempDir,
    tasks: &mut JoinSet<()>,
) -> SocketAddr {
    trains.set_calibration(is);
    let (probe, files) = (Some(Arc::new(trains.clone()) as _), Some(Arc::new(Pours) as _));
    let services = Services { probe, files, ..nothing() };
    let served = Served { legs, ..served(n, membership, services) };
    let daemon = Daemon::bind(config(ANYWHERE, dir.path()), served).await.unwrap();
    let at = daemon.local_addrs()[0];
    let endpoint = Arc::new(Endpoint::bind(ANYWHERE).await.unwrap());
    trains.set_endpoints(vec![Arc::clone(&endpoint)]);
    tasks.spawn(async move { endpoint.run().await });
    tasks.spawn(async move {
        daemon.run(std::future::pending(), std::future::pending()).await;
    });
    at
}
