//! `n1`, whose daemon accepts trains, and the command line of `n0`.

use crate::{
    mangler::{Mangle, Mangler},
    members::{self, ANYWHERE},
};
use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};
use tempfile::TempDir;
use thalweg_base::{budget::Budget, log::Log};
use thalweg_measure::train::{Calibration, Probe, Train};
use thalweg_mesh::{Membership, member_dialer::MemberDialer};
use thalweg_net::{Stream, channel::Protocol};
use thalweg_node::daemon::{Daemon, Services};
use thalweg_probe::{
    prober::ProbeBudget,
    trains::{Endpoint, Session, SessionError, Terms, Trains},
};
use thalweg_units::{ByteSize, Rate};
use tokio::{
    sync::oneshot,
    task::{JoinHandle, JoinSet},
};

/// A host that keeps gaps, whatever machine the test runs on.
pub fn calm() -> Calibration {
    let us = Duration::from_micros;
    Calibration {
        send_latency: us(3),
        receive_latency: us(3),
        gap_error: [us(1), us(50)],
        honest: Rate::from_mbps(900.0),
        is_valid: true,
    }
}

/// A host that does not keep gaps.
pub fn busy() -> Calibration {
    let gap_error = [Duration::from_micros(300), Duration::from_millis(7)];
    Calibration { gap_error, honest: Rate::ZERO, is_valid: false, ..calm() }
}

pub const CALM: fn() -> Terms = || Terms { here: calm(), accepts_busy: false };

/// Equal probes with this gap.
pub fn train(count: usize, size: u16, gap: Duration) -> Train {
    Train::uniform(Probe { size, header: 0, gap, may_carry: false }, count).unwrap()
}

/// A member whose daemon accepts trains; all of it ends when it is dropped.
pub struct Far {
    pub at: SocketAddr,
    pub trains: Trains,
    pub endpoint: Arc<Endpoint>,
    pub membership: Membership,
    pub purse: Arc<ProbeBudget>,
    pub tasks: JoinSet<()>,
    pub dir: TempDir,
    /// The sender is dropped to end the daemon; the task ends with it.
    daemon: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

/// The bytes of a day.
pub const PLENTY: u64 = 1 << 40;

impl Far {
    pub async fn start(n: u8, per_day: u64) -> Self {
        Self::start_at(ANYWHERE, n, per_day).await
    }

    pub async fn start_at(anywhere: SocketAddr, n: u8, per_day: u64) -> Self {
        let dir = TempDir::new().unwrap();
        let membership = members::membership();
        let purse = ProbeBudget::new(Arc::new(Budget::new()), ByteSize::from_bytes(per_day));
        let purse = Arc::new(purse);
        let trains = Trains::new(Arc::clone(&purse), Log::to_queue().0);
        trains.set_calibration(calm());
        let services = Services { probe: Some(Arc::new(trains.clone())), ..members::nothing() };
        let config = members::config(anywhere, dir.path());
        let served = members::served(n, &membership, services);
        let daemon = Daemon::bind(config, served).await.unwrap();
        let at = daemon.local_addrs()[0];
        let endpoint = Arc::new(Endpoint::bind(anywhere).await.unwrap());
        trains.set_endpoints(vec![Arc::clone(&endpoint)]);
        let (receiving, mut tasks) = (Arc::clone(&endpoint), JoinSet::new());
        tasks.spawn(async move { receiving.run().await });
        let (stop, stopped) = oneshot::channel();
        let daemon = tokio::spawn(async move {
            daemon.run(async { _ = stopped.await }, std::future::ready(())).await;
        });
        let daemon = Some((stop, daemon));
        Self { at, trains, endpoint, membership, purse, tasks, dir, daemon }
    }

    /// Ends its daemon, and with it all channels.
    pub async fn kill(&mut self) {
        if let Some((stop, daemon)) = self.daemon.take() {
            drop(stop);
            daemon.await.unwrap();
        }
    }

    /// Ends it without waiting.
    pub fn stop(&mut self) {
        self.daemon = None;
    }
}

/// Both ends, and the relay between them.
pub struct Scene {
    pub far: Far,
    pub near: Arc<Endpoint>,
    pub dialer: MemberDialer,
    mangler: Mangler,
    _tasks: JoinSet<()>,
}

impl Scene {
    /// Starts a scene in which datagrams pass unchanged.
    pub async fn clean() -> Self {
        Self::with(PLENTY, Mangle::nothing()).await
    }

    /// Starts a scene in which `n1` may spend this much per day, and datagrams to it are mangled.
    pub async fn with(per_day: u64, mangle: Mangle) -> Self {
        let far = Far::start(1, per_day).await;
        let members = vec![members::member(0, None, &[]), members::member(1, Some(far.at), &[])];
        let signed = members::signed(1, members);
        let membership = members::membership();
        membership.offer(&signed).unwrap();
        far.membership.offer(&signed).unwrap();
        let near = Arc::new(Endpoint::bind(ANYWHERE).await.unwrap());
        let (receiving, mut tasks) = (Arc::clone(&near), JoinSet::new());
        tasks.spawn(async move { receiving.run().await });
        // The key of n0's command line; n0 has no daemon.
        let dialer = members::dialer(0, &members::key(100), &membership);
        let mangler = Mangler::before(far.endpoint.local_addr().unwrap(), mangle).await;
        Self { far, near, dialer, mangler, _tasks: tasks }
    }

    /// Opens a session whose datagrams pass the mangler.
    pub async fn session(&self, terms: Terms) -> Result<Session<Stream>, SessionError> {
        let channel = self.dialer.channel(&members::name(1), &[], Protocol::Probe).await.unwrap();
        Session::open(channel, self.mangler.ip(), &self.near, terms).await
    }

    /// The number of datagrams that were passed on intact.
    pub fn passed(&self) -> u64 {
        self.mangler.passed()
    }
}

/// The address of manglers: the same ports as at 127.0.0.1, with other sockets.
pub const BETWEEN: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
