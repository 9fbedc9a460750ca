//! The proxy: its settings, its port, and its shutdown.

use super::{
    event::ProxySink,
    http, metrics,
    pool::Pool,
    record::{Recorder, Tally},
    review::Reviewer,
    socks,
    state::ProxyState,
    transparent::{Listeners, RedirectDestinations, RedirectPorts},
};
use std::{
    io,
    net::SocketAddr,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};
use thalweg_base::accept;
use thalweg_net::Dialer;
use thalweg_paths::chooser::PathChooser;
use thalweg_units::ByteSize;
use thalweg_uplinks::{bond::Bonding, interfaces::Uplinks};
use thalweg_wire::socks5;
use thiserror::Error;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{MissedTickBehavior, interval, sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Wait after accept fails, e.g. for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How often the pool is searched for connections that are idle for too long.
const SWEEP: Duration = Duration::from_secs(15);

/// The most split downloads at a time: each has a file, and one or two threads.
const SPLITS: usize = 16;

/// A proxy's settings.
#[derive(Clone, Copy, Debug)]
pub struct ProxyConfig {
    /// Where to listen: a loopback address.
    pub listen: SocketAddr,
    /// Programs' connections at a time; more wait in the kernel's queue.
    pub max_connections: usize,
    /// Objects of at least this length are fetched in ranges over several paths.
    pub split_from: ByteSize,
    /// How long connections may take to end once the proxy shuts down.
    pub drain: Duration,
    /// What else redirects connections to the proxy, of programs that know of no proxy; the proxy has ports for them.
    pub redirect_source: RedirectSource,
}

/// What redirects connections of programs without proxy settings to this proxy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RedirectSource {
    #[default]
    None,
    /// The kernel, by rules that exempt connections with [`super::MARK`]; it keeps the original destinations.
    Rules,
    /// A supervisor of the programs, which registers the destinations in [`Proxy::redirect_destinations`].
    Supervisor,
}

impl ProxyConfig {
    /// Two descriptors per connection stay far below the usual hard limit.
    pub const MAX_CONNECTIONS: usize = 4096;

    /// A smaller object is complete before other paths have left slow start.
    pub const SPLIT_FROM: ByteSize = ByteSize::from_bytes(1 << 20);

    /// The default settings for this address.
    pub const fn new(listen: SocketAddr) -> Self {
        let (max_connections, split_from) = (Self::MAX_CONNECTIONS, Self::SPLIT_FROM);
        Self {
            listen,
            max_connections,
            split_from,
            drain: Duration::from_secs(10),
            redirect_source: RedirectSource::None,
        }
    }
}

/// Why the proxy cannot start.
#[derive(Debug, Error)]
pub enum ProxyError {
    /// Others could use it in this user's name.
    #[error(
        "{0} is not a loopback address: anyone who reaches the proxy would act in your name, \
         because it asks for no password"
    )]
    Open(SocketAddr),
    /// No connection could be served.
    #[error("at least one connection must be allowed")]
    NoConnections,
    /// The address cannot be used.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address that was asked for.
        address: SocketAddr,
        source: io::Error,
    },
}

/// The proxy's counts at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Programs' connections.
    pub connections: u64,
    /// Requests that were answered by an origin.
    pub requests: u64,
    /// Tunnels that were carried.
    pub tunnels: u64,
    /// Requests and tunnels that went by another path than the direct one.
    pub detoured: u64,
    /// Requests whose object came in ranges over several paths.
    pub split: u64,
    /// Requests and tunnels that failed.
    pub refused: u64,
    /// Bytes of content from programs.
    pub up: ByteSize,
    /// Bytes of content to programs.
    pub down: ByteSize,
    /// Connections and tunnels that were cut because draining took too long.
    pub cut: u64,
}

/// A proxy that is bound to its address.
pub struct Proxy {
    listener: TcpListener,
    redirected: Listeners,
    shared: Arc<ProxyState>,
}

/// The interfaces to which direct connections are assigned, and the bonds over which connections to mesh members are
/// striped.
#[derive(Clone, Debug)]
pub struct HostInterfaces {
    pub uplinks: Uplinks,
    /// Its bonds, where it is in a mesh.
    pub bonds: Option<Bonding>,
}

impl Proxy {
    /// Checks the settings and listens; must be called within a tokio runtime.
    ///
    /// The `dialer`'s `TCP_USER_TIMEOUT` should be off: it would end connections whose
    /// program reads slowly.
    ///
    /// # Errors
    /// [`ProxyError`].
    pub async fn bind(
        config: ProxyConfig,
        dialer: Dialer,
        chooser: Arc<dyn PathChooser>,
        sink: Arc<dyn ProxySink>,
    ) -> Result<Self, ProxyError> {
        Self::bind_with_interfaces(config, dialer, None, chooser, sink).await
    }

    /// As [`Self::bind`], with direct connections assigned to this host's interfaces.
    ///
    /// # Errors
    /// [`ProxyError`].
    pub async fn bind_with_interfaces(
        config: ProxyConfig,
        dialer: Dialer,
        over: Option<HostInterfaces>,
        chooser: Arc<dyn PathChooser>,
        sink: Arc<dyn ProxySink>,
    ) -> Result<Self, ProxyError> {
        let address = config.listen;
        if !address.ip().to_canonical().is_loopback() {
            return Err(ProxyError::Open(address));
        }
        if config.max_connections == 0 {
            return Err(ProxyError::NoConnections);
        }
        let failed = |source| ProxyError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let own = listener.local_addr().map_err(failed)?;
        let redirected = match config.redirect_source {
            RedirectSource::None => Listeners::default(),
            RedirectSource::Rules | RedirectSource::Supervisor => {
                Listeners::bind().await.map_err(failed)?
            }
        };
        let tally = Arc::new(Tally::default());
        let registry = metrics::registry(&tally, over.as_ref());
        let uplinks = over.map(|over| over.uplinks);
        let shared = Arc::new(ProxyState {
            config,
            dialer,
            uplinks,
            chooser,
            recorder: Recorder { tally, sink },
            registry,
            pool: Arc::new(Pool::default()),
            name: name(own),
            own,
            tracker: TaskTracker::new(),
            stop: CancellationToken::new(),
            cut: CancellationToken::new(),
            splits: Arc::new(Semaphore::new(SPLITS)),
            reviewer: Reviewer::default(),
            redirect_destinations: RedirectDestinations::default(),
        });
        Ok(Self { listener, redirected, shared })
    }

    /// The address that it listens on, with the port that was chosen.
    pub fn local_addr(&self) -> SocketAddr {
        self.shared.own
    }

    /// The ports for redirected connections; `None`: it has no such ports.
    pub fn redirect_ports(&self) -> Option<RedirectPorts> {
        self.redirected.ports()
    }

    /// The register into which a supervisor (`thalweg run`) puts the destinations of the connections that it redirects
    /// here ([`RedirectSource::Supervisor`]).
    pub fn redirect_destinations(&self) -> RedirectDestinations {
        self.shared.redirect_destinations.clone()
    }

    /// A handle for the part that learns of revocations while the proxy runs.
    pub fn reviewer(&self) -> Reviewer {
        self.shared.reviewer.clone()
    }

    /// Returns a token; cancelling it ends draining at once and resets the remaining connections.
    pub fn cutter(&self) -> CancellationToken {
        self.shared.cut.clone()
    }

    /// Serves until `stop` ends, then drains and returns.
    ///
    /// While it drains, nothing is accepted; requests under way have [`ProxyConfig::drain`] to be answered, and tunnels
    /// to end. The rest is reset. To cut at once, cancel [`Proxy::cutter`], or drop the future.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Summary {
        let Self { listener, redirected, shared } = self;
        // Dropping this future ends all connections.
        let _cut = shared.cut.clone().drop_guard();
        let places = Arc::new(Semaphore::new(shared.config.max_connections));
        redirected.run(&shared, &places);
        let mut sweep = interval(SWEEP);
        sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut stop = std::pin::pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => break,
                _ = sweep.tick() => shared.pool.sweep(),
                (place, accepted) = accept::next(&places, &listener) => match accepted {
                    Ok((tcp, client)) => take(&shared, tcp, client, place),
                    Err(_) => sleep(ACCEPT_PAUSE).await,
                },
            }
        }
        drop(listener);
        drain(&shared).await;
        summary(&shared.recorder.tally)
    }
}

fn take(
    shared: &Arc<ProxyState>,
    tcp: TcpStream,
    client: SocketAddr,
    place: Option<OwnedSemaphorePermit>,
) {
    shared.recorder.tally.connections.fetch_add(1, Relaxed);
    let served = Arc::clone(shared);
    shared.tracker.spawn(async move {
        serve(served, tcp, client).await;
        drop(place);
    });
}

async fn serve(shared: Arc<ProxyState>, tcp: TcpStream, client: SocketAddr) {
    // It fails if the program has left already, which its reads will tell.
    _ = tcp.set_nodelay(true);
    let mut first = [0];
    let looked = tokio::select! {
        looked = timeout(http::FIRST_HEAD, tcp.peek(&mut first)) => looked,
        () = shared.stop.cancelled() => return,
        () = shared.cut.cancelled() => return,
    };
    match looked {
        Ok(Ok(1)) if first[0] == socks5::VERSION => socks::serve(shared, tcp, client).await,
        Ok(Ok(1)) if first[0] == socks::VERSION_4 => socks::refuse_4(&shared, tcp, client).await,
        Ok(Ok(1)) => {
            let cut = shared.cut.clone();
            let serving = http::serve(shared, tcp, client);
            tokio::select! { () = cut.cancelled() => {}, () = serving => {} }
        }
        _ => {}
    }
}

/// Waits for connections under way to end, for a limited time.
async fn drain(shared: &ProxyState) {
    shared.stop.cancel();
    shared.pool.clear();
    shared.tracker.close();
    let is_cut = tokio::select! {
        biased;
        () = shared.cut.cancelled() => true,
        () = shared.tracker.wait() => false,
        () = sleep(shared.config.drain) => true,
    };
    if is_cut {
        shared.recorder.tally.cut.store(shared.tracker.len() as u64, Relaxed);
        shared.cut.cancel();
        shared.tracker.wait().await;
    }
}

fn summary(tally: &Tally) -> Summary {
    let bytes = |n: &std::sync::atomic::AtomicU64| ByteSize::from_bytes(n.load(Relaxed));
    Summary {
        connections: tally.connections.load(Relaxed),
        requests: tally.requests.load(Relaxed),
        tunnels: tally.tunnels.load(Relaxed),
        detoured: tally.detoured.load(Relaxed),
        split: tally.split.load(Relaxed),
        refused: tally.refused.load(Relaxed),
        up: bytes(&tally.up),
        down: bytes(&tally.down),
        cut: tally.cut.load(Relaxed),
    }
}

/// `thalweg-` and a random number: a pseudonym that no other proxy has (RFC 9110 §7.6.3).
fn name(own: SocketAddr) -> String {
    let mut number = [0; 4];
    if getrandom::fill(&mut number).is_err() {
        number = (std::process::id() ^ u32::from(own.port()) << 16).to_be_bytes();
    }
    format!("thalweg-{:08x}", u32::from_be_bytes(number))
}
