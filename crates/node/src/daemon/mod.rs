//! The daemon: one TCP port for the mesh, and the services for its own host.
//!
//! ```text
//! TCP port (all protocols) ── door ──┬─ relay ── thalweg_relay
//!                                    └─ api, join ── the oracle, plugged in by the binary
//! node.sock (owner alone)  ─┬─ api
//! loopback, guarded        ─┘
//! loopback, if wanted      ── local_socks, metrics
//! ```
//!
//! It ends in order: accepting stops, requests of the API are finished, relayed connections get time to end by
//! themselves, and the rest is reset.

mod api;
mod channel_limits;
mod client;
mod counters;
mod error;
pub(crate) mod handshake_gate;
mod jobs_client;
mod leg_observer;
mod local_socks;
mod mesh_port;
mod metrics;
mod oracle_down;
mod reload;
mod status;
#[cfg(feature = "otel")]
mod traces;

pub use api::{ApiConfig, Documents, NoDocuments, PageLink, PathDocument, bind as bind_local};
pub use client::{LocalClient, LocalError};
pub use counters::Counts;
pub use error::DaemonError;
pub use handshake_gate::HandshakeLimits;
pub use jobs_client::{JobChange, JobChanges, JobList};
pub use local_socks::LocalRoutes;
pub use mesh_port::Services;
pub use oracle_down::OracleDown;
pub use reload::{NoReload, Reload, ReloadReply};
pub use status::{NodeStatus, OracleStatus, RosterStatus, roster_status};

use api::{ApiParts, Doors};
use counters::Counters;
use handshake_gate::HandshakeGate;
use local_socks::LocalSocks;
use mesh_port::{MeshPort, ShutdownSignals};
use metrics::RosterMetrics;
use prometheus_client::registry::Registry;
use status::{StatusSources, duties};
use std::{
    fs, io,
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};
use thalweg_base::log::{Event, Log};
use thalweg_jobs::Jobs;
use thalweg_mesh::{
    Membership,
    reach::{ReachView, ReverseConnection},
    service::{Control, SubmitService},
};
use thalweg_net::{
    PrivateKey,
    channel::{Acceptor, Admission, Protocol},
    legs::Legs,
    memory,
};
use thalweg_relay::{Relay, RelayConfig};
use thalweg_units::NodeId;
use thalweg_wire::{Signer as _, mesh::Name};
use tokio::{
    net::TcpListener,
    sync::mpsc,
    task::{JoinSet, spawn_blocking},
    time::{sleep, timeout},
};

/// How long requests of the API that are being answered may take on shutdown. Waiting requests (`GET
/// /v1/roster?wait_s=…`) are then cut: their clients repeat them.
const API_GRACE: Duration = Duration::from_secs(1);

/// How often to check for free memory that the allocator keeps.
const MEMORY_PAUSE: Duration = Duration::from_secs(10);

/// A daemon's addresses and time limits.
#[derive(Clone, Debug)]
pub struct DaemonConfig {
    /// The mesh's port, on one address or several; port 0 takes a free one.
    pub listen: Vec<SocketAddr>,
    /// The same port for connections over the carrier, if there is one: at an address that this host has only while its
    /// device exists.
    pub riding: Option<SocketAddr>,
    /// The time limit of a preamble and TLS: 10 s, five round trips of the slowest satellite path.
    pub handshake: Duration,
    /// How many handshakes may be in progress.
    pub limits: HandshakeLimits,
    /// How long relayed connections may go on after shutdown begins; then they are reset.
    pub drain: Duration,
    /// The loopback address of `GET /metrics`.
    pub metrics: Option<SocketAddr>,
    /// The API's socket.
    pub socket: PathBuf,
    /// The API and the page on loopback; `None`: there is no such door.
    pub api: Option<ApiConfig>,
    /// SOCKS5 for local programs.
    pub socks: Option<SocksConfig>,
}

/// SOCKS5 for local programs.
#[derive(Clone, Debug)]
pub enum SocksConfig {
    /// Directly from this host, as `thalweg relay` does, on `RelayConfig::listen`.
    Direct(Box<RelayConfig>),
    Mesh {
        /// A loopback address.
        listen: SocketAddr,
        ways: Box<LocalRoutes>,
    },
}

/// The node that a daemon serves.
#[derive(Debug)]
pub struct Node {
    /// Its name in the roster.
    pub name: Name,
    /// The daemon's key.
    pub key: PrivateKey,
    pub membership: Membership,
    /// The services of the protocols.
    pub services: Services,
    /// Answers requests that only an oracle can answer.
    pub control: Arc<dyn Control>,
    /// The queue of transfers; `None`: it cannot be used.
    pub jobs: Option<Jobs>,
    /// Makes what the API shows of paths and interfaces.
    pub documents: Arc<dyn Documents>,
    /// Reads the settings again.
    pub settings: Arc<dyn Reload>,
    /// Metrics of the services; the daemon adds its own.
    pub registry: Registry,
    /// Records the bytes that transfers move to members; `None`: nobody needs them.
    pub legs: Option<Legs>,
    /// How others reach this node if they cannot dial it; `None`: they dial it.
    pub reach: Option<NodeReach>,
    pub log: Log,
}

/// The connections that a node opens because others cannot dial it.
#[derive(Debug)]
pub struct NodeReach {
    pub connections: mpsc::Receiver<ReverseConnection>,
    pub view: ReachView,
}

/// A daemon that is bound to its addresses; needs a tokio runtime.
#[derive(Debug)]
pub struct Daemon {
    door: Arc<MeshPort>,
    listeners: Vec<TcpListener>,
    metrics: Option<TcpListener>,
    registry: Arc<Registry>,
    doors: Doors,
    socket: PathBuf,
    socks: Option<SocksListener>,
    reverse: Option<mpsc::Receiver<ReverseConnection>>,
    drain: Duration,
}

/// The bound SOCKS5 listener.
#[derive(Debug)]
enum SocksListener {
    Direct(Relay),
    Mesh(TcpListener, Arc<LocalSocks>),
}

/// What a daemon did while it ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Connections that got no channel.
    pub strangers: u64,
    /// Relayed connections that were reset because draining took too long.
    pub cut: usize,
}

impl Daemon {
    /// Binds all addresses. The caller holds the state directory's lock.
    ///
    /// # Errors
    /// [`DaemonError`].
    pub async fn bind(config: DaemonConfig, node: Node) -> Result<Self, DaemonError> {
        let Node { name, key, membership, services, control, jobs, documents, .. } = node;
        let settings = node.settings;
        let (mut registry, legs, log) = (node.registry, node.legs, node.log);
        let (reverse, reach) = node.reach.map(|reach| (reach.connections, reach.view)).unzip();
        let (listeners, bound) = bind_mesh(&config, &log)?;
        let metrics = match config.metrics {
            Some(address) => Some(listen_local("metrics", address)?),
            None => None,
        };
        let counters = Counters::register(&mut registry);
        registry.register_collector(Box::new(RosterMetrics(membership.clone())));
        let subject = StatusSources {
            name,
            key: key.id(),
            membership: membership.clone(),
            control,
            is_oracle: services.oracle.is_some(),
            relay: services.relay.clone(),
            files: services.files.clone(),
            submit: services.submit.clone(),
            cast: services.cast.clone(),
            stream: services.stream.clone(),
            probe: services.probe.clone(),
            measure: services.measure.clone(),
            standing: services.reach.clone(),
            reach,
            counters: counters.clone(),
            listen: bound,
            duties: duties(&membership, &key.id()),
            started: Instant::now(),
        };
        let submit = services.submit.clone();
        let admission = Arc::new(KeyAdmission { membership: membership.clone(), submit });
        let acceptor = Acceptor::new(&key, admission, &services.protocols());
        let door = Arc::new(MeshPort {
            acceptor: acceptor.map_err(DaemonError::Key)?,
            membership,
            services,
            gate: HandshakeGate::new(config.limits),
            rooms: Default::default(),
            keys: mesh_port::key_turns(),
            handshake: config.handshake,
            log,
            counters,
            strangers: Default::default(),
            failures: Default::default(),
            legs,
            ends: ShutdownSignals::default(),
        });
        let socks = bind_socks(config.socks, &subject, &door.log).await?;
        let loopback = bind_api(config.api, &door.log).await?;
        // Last, so that a start that fails for another reason takes no socket away.
        let socket = config.socket;
        let bound = bind_local(&socket);
        let local =
            bound.map_err(|source| DaemonError::Socket { socket: socket.clone(), source })?;
        let stop = door.ends.stop.clone();
        let parts = ApiParts { sources: subject, jobs, documents, settings, stop };
        let doors = Doors::new(parts, local, loopback, &door.log);
        let (registry, drain) = (Arc::new(registry), config.drain);
        Ok(Self { door, listeners, metrics, registry, doors, socket, socks, reverse, drain })
    }

    /// The addresses of the mesh's port, with the ports that were chosen.
    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.doors.api.sources.listen
    }

    /// The address of the API on loopback, if it is served there.
    pub fn api_addr(&self) -> Option<SocketAddr> {
        self.doors.loopback_addr()
    }

    /// The address of SOCKS5 for local programs, if it is served.
    pub fn socks_addr(&self) -> Option<SocketAddr> {
        match &self.socks {
            Some(SocksListener::Direct(relay)) => relay.local_addr().ok(),
            Some(SocksListener::Mesh(listener, _)) => listener.local_addr().ok(),
            None => None,
        }
    }

    /// The address of the metrics, if they are served.
    pub fn metrics_addr(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    /// Serves until `shutdown` ends, then drains; cuts the rest once `at_once` ends.
    pub async fn run(
        self,
        shutdown: impl Future<Output = ()>,
        at_once: impl Future<Output = ()>,
    ) -> Summary {
        let Self { door, listeners, metrics, registry, doors, socket, socks, reverse, drain } =
            self;
        let ends = door.ends.clone();
        let mut tasks = JoinSet::new();
        for listener in listeners {
            tasks.spawn(Arc::clone(&door).listen(listener));
        }
        #[cfg(feature = "otel")]
        begin_traces(&mut tasks, &doors.api, &door.log);
        if let Some(reverse) = reverse {
            tasks.spawn(Arc::clone(&door).receive(reverse));
        }
        tasks.spawn(doors.serve());
        tasks.spawn(return_free_memory());
        if let Some(listener) = metrics {
            tasks.spawn(metrics::serve(listener, registry, ends.stop.clone()));
        }
        match socks {
            Some(SocksListener::Direct(relay)) => {
                let (stop, cut) = (ends.stop.clone(), ends.cut_relay.clone());
                ends.relay.spawn(async move {
                    let running = relay.run(stop.cancelled_owned());
                    tokio::select! { _ = running => {}, () = cut.cancelled() => {} }
                });
            }
            Some(SocksListener::Mesh(listener, socks)) => {
                tasks.spawn(socks.listen(listener, ends.clone()));
            }
            None => {}
        }
        shutdown.await;
        ends.stop.cancel();
        door.log.put(Event::new("draining").with("live", ends.relay.len()));
        let cut = shut_down(&ends, drain, at_once).await;
        tasks.shutdown().await;
        // It is gone already, or is left for the next start to remove.
        _ = fs::remove_file(socket);
        let strangers = door.counters.counts().strangers;
        door.log.put(Event::new("stopped").with("strangers", strangers).with("cut", cut));
        Summary { strangers, cut }
    }
}

/// Exports traces of jobs, if the environment asks for it.
#[cfg(feature = "otel")]
fn begin_traces(tasks: &mut JoinSet<()>, api: &api::Api, log: &Log) {
    match (traces::exporter(api.sources.name.as_str()), api.jobs.clone()) {
        (Ok(Some(exporter)), Some(jobs)) => {
            tasks.spawn(traces::export(jobs, exporter, log.clone()));
        }
        (Err(why), _) => log.put(Event::new("no_traces").with("why", why)),
        _ => {}
    }
}

/// Returns memory to the system after peaks. Runs until the future is dropped.
async fn return_free_memory() {
    loop {
        sleep(MEMORY_PAUSE).await;
        // `give_back` takes the allocator's locks for a moment, and cannot fail.
        _ = spawn_blocking(memory::give_back).await;
    }
}

/// Waits for all channels, each kind for its time, and cuts the rest. Returns how many of these were relayed.
async fn shut_down(
    ends: &ShutdownSignals,
    drain: Duration,
    at_once: impl Future<Output = ()>,
) -> usize {
    ends.api.close();
    ends.relay.close();
    let api = async {
        _ = timeout(API_GRACE, ends.api.wait()).await;
        ends.cut_api.cancel();
        ends.api.wait().await;
    };
    let all = async { tokio::join!(api, timeout(drain, ends.relay.wait())) };
    tokio::select! { _ = all => {}, () = at_once => {} }
    let cut = ends.relay.len();
    ends.cut_api.cancel();
    ends.cut_relay.cancel();
    tokio::join!(ends.api.wait(), ends.relay.wait());
    cut
}

/// Binds the mesh's port. Returns the listeners, and the addresses without that of the carrier.
fn bind_mesh(
    config: &DaemonConfig,
    log: &Log,
) -> Result<(Vec<TcpListener>, Vec<SocketAddr>), DaemonError> {
    let mut listeners = Vec::new();
    for address in &config.listen {
        match listen("the mesh's port", *address) {
            Err(DaemonError::Listen { source, .. })
                if config.listen.len() > 1 && lacks_family(address, &source) => {}
            bound => listeners.push(bound?),
        }
    }
    let bound: Vec<_> = listeners.iter().filter_map(|l| l.local_addr().ok()).collect();
    if let Some(at) = config.riding.filter(|at| !bound.iter().any(|own| covers(own, at))) {
        match bind_tcp(at, true) {
            Ok(listener) => listeners.push(listener),
            Err(why) => log.put(Event::new("no_riding_legs").with("at", at).with("why", why)),
        }
    }
    Ok((listeners, bound))
}

/// Binds the API's port on loopback; otherwise says why there is none. An optional one may be taken, which is logged.
async fn bind_api(
    config: Option<ApiConfig>,
    log: &Log,
) -> Result<Result<(ApiConfig, TcpListener), String>, DaemonError> {
    let off = "the page is off: `[api] listen` in the node's settings is \"off\"";
    let Some(config) = config else { return Ok(Err(off.to_owned())) };
    let at = config.listen;
    match listen_local("[api] listen", at) {
        Ok(listener) => Ok(Ok((config, listener))),
        Err(DaemonError::Listen { what, address, source })
            if source.kind() == io::ErrorKind::AddrInUse =>
        {
            let is_optional = config.is_optional;
            let taken = spawn_blocking(move || api::port_is_taken(&config)).await;
            let taken = taken.unwrap_or_else(|_| source.to_string());
            if !is_optional {
                let source = io::Error::new(source.kind(), taken);
                return Err(DaemonError::Listen { what, address, source });
            }
            let why = format!("the page is off: {taken}");
            log.put(Event::new("no_page").with("at", at).with("why", &why));
            Ok(Err(why))
        }
        Err(e) => Err(e),
    }
}

async fn bind_socks(
    config: Option<SocksConfig>,
    subject: &StatusSources,
    log: &Log,
) -> Result<Option<SocksListener>, DaemonError> {
    Ok(match config {
        None => None,
        Some(SocksConfig::Direct(config)) => {
            Some(SocksListener::Direct(Relay::bind(*config, log.clone()).await?))
        }
        Some(SocksConfig::Mesh { listen, ways }) => {
            let listener = listen_local("SOCKS5 for local programs", listen)?;
            let socks = LocalSocks {
                ways: *ways,
                membership: subject.membership.clone(),
                me: subject.name.clone(),
                log: log.clone(),
                counters: subject.counters.clone(),
            };
            Some(SocksListener::Mesh(listener, Arc::new(socks)))
        }
    })
}

fn listen(what: &'static str, address: SocketAddr) -> Result<TcpListener, DaemonError> {
    bind_tcp(address, false).map_err(|source| DaemonError::Listen { what, address, source })
}

/// Whether a listener at `own` also gets connections to `at`.
fn covers(own: &SocketAddr, at: &SocketAddr) -> bool {
    let is_all = own.is_ipv6() == at.is_ipv6() && own.ip().is_unspecified();
    own.port() == at.port() && (is_all || own.ip() == at.ip())
}

/// Whether all of IPv6 was meant, and this host has no IPv6.
fn lacks_family(address: &SocketAddr, e: &io::Error) -> bool {
    let unsupported = rustix::io::Errno::AFNOSUPPORT.raw_os_error();
    let none = e.raw_os_error() == Some(unsupported) || e.kind() == io::ErrorKind::AddrNotAvailable;
    none && address.is_ipv6() && address.ip().is_unspecified()
}

fn listen_local(what: &'static str, address: SocketAddr) -> Result<TcpListener, DaemonError> {
    if !address.ip().to_canonical().is_loopback() {
        return Err(DaemonError::NotLoopback { what, address });
    }
    listen(what, address)
}

/// The kernel's queue of connections that were not accepted yet: a burst of some thousand, as many as
/// `net.core.somaxconn` allows.
const BACKLOG: i32 = 4096;

/// Binds a listener. For IPv6 it accepts only IPv6, so that `0.0.0.0` and `::` can be bound side by side. `is_free`:
/// this host need not have the address yet.
fn bind_tcp(address: SocketAddr, is_free: bool) -> io::Result<TcpListener> {
    use socket2::{Domain, Socket, Type};
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking(), None)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
        socket.set_freebind_v6(is_free)?;
    }
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Admits keys by the roster and the settings of drop boxes.
#[derive(Debug)]
struct KeyAdmission {
    pub membership: Membership,
    pub submit: Option<Arc<dyn SubmitService>>,
}

impl Admission for KeyAdmission {
    fn admits(&self, key: &NodeId, protocol: Protocol) -> bool {
        let is_open = || self.submit.as_ref().is_some_and(|submit| submit.admits(key));
        self.membership.admits(key, protocol) || (protocol == Protocol::Submit && is_open())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_at_all_of_ipv6_gets_the_carriers_connections() {
        let hears = |own: &str| covers(&own.parse().unwrap(), &"[fd00::1]:7373".parse().unwrap());
        assert!(hears("[::]:7373") && hears("[fd00::1]:7373"));
        assert!(!hears("[::]:7374") && !hears("0.0.0.0:7373") && !hears("[fd00::2]:7373"));
    }

    #[tokio::test]
    async fn an_address_that_the_host_does_not_have_yet_can_be_bound() {
        let at = "[fd54:1::1]:0".parse().unwrap();
        assert!(bind_tcp(at, false).is_err());
        assert_eq!(bind_tcp(at, true).unwrap().local_addr().unwrap().ip(), at.ip());
    }

    #[test]
    fn only_all_of_ipv6_may_be_missing() {
        let unsupported = || io::Error::from(rustix::io::Errno::AFNOSUPPORT);
        let lacks = |address: &str, e: &io::Error| lacks_family(&address.parse().unwrap(), e);
        assert!(lacks("[::]:7373", &unsupported()));
        assert!(lacks("[::]:7373", &io::ErrorKind::AddrNotAvailable.into()));
        // Addresses that were named explicitly must exist, and IPv4 is not optional.
        assert!(!lacks("[2001:db8::1]:7373", &io::ErrorKind::AddrNotAvailable.into()));
        assert!(!lacks("0.0.0.0:7373", &unsupported()));
        assert!(!lacks("[::]:7373", &io::ErrorKind::AddrInUse.into()));
    }
}
