//! A SOCKS5 relay (RFC 1928, CONNECT): the detour node of UKAIRO §3.2.3.
//!
//! ```text
//! accept ─ client allowed? ─ SOCKS5 ─ resolve ─ egress policy ─ connect ─ pump
//!            no: closed without a byte          no: reply 2               │
//!                                    liveness: idle, linger, black hole ──┘
//! ```
//!
//! - A stranger gets no byte; a listener beyond loopback names its clients.
//! - Names are resolved here, every address is checked, and a checked address is dialled.
//! - Half-closed connections go on; a leg that breaks *resets* the other, so that
//!   no truncated stream looks complete.
//! - Bounded: connections, buffers, every deadline. With no descriptor left,
//!   accepting waits and live connections go on.
//!
//! Differs from the paper's srelay: egress policy, liveness and half-close.

mod address_class;
mod config;
mod descriptors;
mod egress;
mod liveness;
mod log;
mod pump;
mod session;
#[cfg(test)]
mod tests;

pub use address_class::Class;
pub use config::{CidrError, ConfigError, RelayConfig, parse_cidr};
pub use descriptors::raise_descriptor_limit;
pub use egress::{Denial, EgressPolicy, PortRange, PortRangeError, SMTP};
pub use ipnet::IpNet;
pub use log::{Event, Log};

use socket2::SockRef;
use std::{io, net::SocketAddr, sync::Arc, time::Duration};
use thiserror::Error;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

/// Wait after accept fails for want of descriptors or memory: short enough to
/// use what frees up, long enough not to spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Log lines about one kind of trouble that strangers can cause: at most one in this time.
const LOG_PAUSE: Duration = Duration::from_secs(1);

/// A relay that is bound to its address.
#[derive(Debug)]
pub struct Relay {
    listener: TcpListener,
    config: Arc<RelayConfig>,
    log: Log,
}

/// What a relay did in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Clients that were served, well or not.
    pub served: u64,
    /// Strangers that were closed without a byte.
    pub strangers: u64,
    /// Connections that were reset because draining took too long.
    pub cut: u64,
}

/// The relay cannot start.
#[derive(Debug, Error)]
pub enum BindError {
    /// The settings.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The address.
    #[error("cannot listen on {address}: {source} (is another program using it?)")]
    Listen {
        /// The address asked for.
        address: SocketAddr,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl Relay {
    /// Checks the settings and listens; must be called within a tokio runtime.
    ///
    /// # Errors
    /// [`BindError`].
    pub async fn bind(config: RelayConfig, log: Log) -> Result<Self, BindError> {
        config.check()?;
        let address = config.listen;
        let bound = TcpListener::bind(address).await;
        let listener = bound.map_err(|source| BindError::Listen { address, source })?;
        Ok(Self { listener, config: Arc::new(config), log })
    }

    /// The address it listens on, with the port that was chosen.
    ///
    /// # Errors
    /// The kernel's; not expected.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `shutdown` ends, then drains and returns.
    ///
    /// Draining: nothing is accepted any more, live connections have
    /// [`RelayConfig::drain`] to finish, the rest is reset. To cut at once, drop
    /// the future: all legs are reset.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Summary {
        let Self { listener, config, log } = self;
        let places = config.max_connections.min(Semaphore::MAX_PERMITS);
        let places = Arc::new(Semaphore::new(places));
        let mut house = House::new(config, log);
        let mut shutdown = std::pin::pin!(shutdown);
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                Some(_) = house.sessions.join_next() => {}
                (permit, accepted) = next(&places, &listener) => house.take(permit, accepted).await,
            }
        }
        drop(listener);
        house.drain().await
    }
}

/// A place first, then a client: the kernel's queue holds those without a place.
async fn next(
    places: &Arc<Semaphore>,
    listener: &TcpListener,
) -> (Option<OwnedSemaphorePermit>, io::Result<(TcpStream, SocketAddr)>) {
    // It fails only when closed, which nobody does.
    let permit = Arc::clone(places).acquire_owned().await.ok();
    (permit, listener.accept().await)
}

/// The connections of a running relay.
struct House {
    config: Arc<RelayConfig>,
    log: Log,
    /// As many as there are places taken, and ended ones that are not yet reaped.
    sessions: JoinSet<()>,
    summary: Summary,
    strangers_logged: Throttle,
    accept_logged: Throttle,
}

impl House {
    fn new(config: Arc<RelayConfig>, log: Log) -> Self {
        Self {
            config,
            log,
            sessions: JoinSet::new(),
            summary: Summary::default(),
            strangers_logged: Throttle::default(),
            accept_logged: Throttle::default(),
        }
    }

    async fn take(
        &mut self,
        permit: Option<OwnedSemaphorePermit>,
        accepted: io::Result<(TcpStream, SocketAddr)>,
    ) {
        match accepted {
            Ok((client, from)) if self.config.admits(from.ip()) => self.serve(permit, client, from),
            Ok((_, from)) => self.stranger(from),
            Err(e) => self.accept_failed(&e).await,
        }
    }

    fn serve(&mut self, permit: Option<OwnedSemaphorePermit>, client: TcpStream, from: SocketAddr) {
        self.summary.served += 1;
        let (config, log) = (Arc::clone(&self.config), self.log.clone());
        self.sessions.spawn(async move {
            // A client that has left already makes this fail; its reads will tell.
            _ = session::leg_options().apply(SockRef::from(&client));
            log.put(session::serve(client, from, &config).await);
            drop(permit);
        });
    }

    fn stranger(&mut self, from: SocketAddr) {
        self.summary.strangers += 1;
        if let Some(more) = self.strangers_logged.pass(Instant::now()) {
            self.log.put(Event::new("stranger").with("client", from).with("unlogged", more));
        }
    }

    /// Most often EMFILE or ENFILE: a connection that ends gives two descriptors back.
    async fn accept_failed(&mut self, e: &io::Error) {
        let of_one_client = [io::ErrorKind::ConnectionAborted, io::ErrorKind::Interrupted];
        if of_one_client.contains(&e.kind()) {
            return;
        }
        if let Some(more) = self.accept_logged.pass(Instant::now()) {
            let event = Event::new("accept_failed").with("why", e).with("unlogged", more);
            self.log.put(event.with("live", self.sessions.len()));
        }
        sleep(ACCEPT_PAUSE).await;
    }

    async fn drain(mut self) -> Summary {
        let live = self.sessions.len();
        self.log.put(Event::new("draining").with("live", live));
        let all_ended = async { while self.sessions.join_next().await.is_some() {} };
        _ = timeout(self.config.drain, all_ended).await;
        self.summary.cut = self.sessions.len() as u64;
        self.sessions.shutdown().await;
        self.log.put(
            Event::new("stopped")
                .with("served", self.summary.served)
                .with("strangers", self.summary.strangers)
                .with("cut", self.summary.cut),
        );
        self.summary
    }
}

/// Lets one log line pass per [`LOG_PAUSE`], and counts the others.
#[derive(Debug, Default)]
struct Throttle {
    last: Option<Instant>,
    held_back: u64,
}

impl Throttle {
    /// `Some(held back since the last)` if a line may pass now.
    fn pass(&mut self, now: Instant) -> Option<u64> {
        if self.last.is_some_and(|last| now.duration_since(last) < LOG_PAUSE) {
            self.held_back += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.held_back))
    }
}
