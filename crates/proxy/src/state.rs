//! The state that all program connections share, and the one function by which they connect to destinations.

use super::{
    assignment::{apply_lanes, attach_passage},
    dial::{DialledConnection, race},
    pool::Pool,
    rebinding::is_rebound,
    record::Recorder,
    review::Reviewer,
    server::ProxyConfig,
    transparent::RedirectDestinations,
};
use prometheus_client::registry::Registry;
use rustix::io::Errno;
use std::{
    io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};
use thalweg_net::{Cause, DialError, Dialer, Stream};
use thalweg_paths::chooser::{Content, PathChooser, PathReport};
use thalweg_paths::history::PathObservation;
use thalweg_uplinks::interfaces::{Client, Lanes, Uplinks};
use thalweg_wire::Destination;
use thiserror::Error;
use tokio::{sync::Semaphore, time::sleep};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// How long a request waits for a descriptor when this process has none left; other connections may end meanwhile.
const DESCRIPTOR: Duration = Duration::from_secs(60);

/// How often it tries again.
const AGAIN: Duration = Duration::from_millis(100);

/// Why there is no connection to a destination.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// The destination is this proxy.
    #[error("the destination is this proxy itself")]
    Own,
    /// A foreign name resolved to this host or its local network, see `rebinding`.
    #[error(
        "the destination's name resolves to this host's loopback, to its link, or to its cloud's metadata service, \
         which may be an attack (DNS rebinding); if this is intended, add the name to /etc/hosts, or connect without the proxy \
         (no_proxy)"
    )]
    Rebound,
    /// The settings leave no interface, see [`thalweg_uplinks::interfaces`].
    #[error(
        "the settings leave no interface for the destination that is up and may be used; \
         `thalweg interfaces status` shows the state of each"
    )]
    Interfaces,
    /// No path led to a connection; this is the failure of the direct one.
    #[error(transparent)]
    Dial(#[from] DialError),
}

/// The state that all connections share.
pub struct ProxyState {
    pub(super) config: ProxyConfig,
    pub(super) dialer: Dialer,
    pub(super) chooser: Arc<dyn PathChooser>,
    /// This host's interfaces, if connections are assigned to them.
    pub(super) uplinks: Option<Uplinks>,
    pub(super) recorder: Recorder,
    /// The metrics of `GET /metrics`.
    pub(super) registry: Registry,
    pub(super) pool: Arc<Pool>,
    /// The proxy's name in `Via`; no other proxy has the same one.
    pub(super) name: String,
    /// The address that the proxy listens on.
    pub(super) own: SocketAddr,
    /// Live connections and tunnels.
    pub(super) tracker: TaskTracker,
    /// Cancelled when no new requests are taken.
    pub(super) stop: CancellationToken,
    /// Cancelled when all connections are to end.
    pub(super) cut: CancellationToken,
    pub(super) splits: Arc<Semaphore>,
    /// Has connections by relays checked.
    pub(super) reviewer: Reviewer,
    /// The destinations of connections that a supervisor redirected here.
    pub(super) redirect_destinations: RedirectDestinations,
}

impl ProxyState {
    /// Connects to `to` for this program: races the paths that the chooser proposes over the assigned interfaces.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub(super) async fn connect(
        &self,
        client: &Client,
        to: &Destination,
        content: Content,
    ) -> Result<DialledConnection, ConnectError> {
        let lanes = self.assign_interfaces(client, to).await?;
        self.connect_over(lanes, client, to, content, None).await
    }

    /// As [`Self::connect`], with the given assignment of interfaces, and without the path named `avoided`. If this
    /// process has no descriptor left, it waits for one and is assigned again.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub(super) async fn connect_over(
        &self,
        mut lanes: Lanes,
        client: &Client,
        to: &Destination,
        content: Content,
        avoided: Option<&str>,
    ) -> Result<DialledConnection, ConnectError> {
        let began = Instant::now();
        let raced = loop {
            let choice = self.chooser.choose(to, content).remove_detour(avoided);
            let (choice, passage) = apply_lanes(choice, lanes);
            let mut raced = race(&self.dialer, to, choice).await;
            attach_passage(&mut raced, passage);
            let short = raced.won.as_ref().is_err_and(lacks_descriptors);
            if !short || began.elapsed() > DESCRIPTOR {
                break raced;
            }
            // The descriptors of idle origin connections are the first to be freed.
            self.pool.clear();
            sleep(AGAIN).await;
            lanes = self.assign_interfaces(client, to).await?;
        };
        for path in &raced.failed {
            self.chooser.learn(to, content, PathReport::Failed(path));
        }
        let dialled = raced.won?;
        match direct_peer(&dialled.stream) {
            Some(peer) if peer == canonical(self.own) => Err(ConnectError::Own),
            Some(peer) if is_rebound(to, peer).await => Err(ConnectError::Rebound),
            _ => Ok(dialled),
        }
    }

    /// Reports to the path chooser what was observed.
    pub(super) fn report_carried(
        &self,
        to: &Destination,
        content: Content,
        observed: &PathObservation,
    ) {
        self.chooser.learn(to, content, PathReport::Carried(observed));
    }
}

/// The peer of a direct connection; `::ffff:127.0.0.1` becomes 127.0.0.1.
fn direct_peer(stream: &Stream) -> Option<SocketAddr> {
    let peer = stream.tcp().filter(|_| stream.route().is_direct())?.peer_addr().ok()?;
    Some(canonical(peer))
}

fn canonical(at: SocketAddr) -> SocketAddr {
    SocketAddr::new(at.ip().to_canonical(), at.port())
}

/// Whether the dial failed only because this process, or this host, has too many open files.
fn lacks_descriptors(error: &DialError) -> bool {
    let (Cause::Socket(error)
    | Cause::Leg(error)
    | Cause::Resolve(error)
    | Cause::Connect { source: error, .. }) = &error.cause
    else {
        return false;
    };
    is_short(error)
}

fn is_short(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    [Errno::MFILE, Errno::NFILE].iter().any(|short| code == Some(short.raw_os_error()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn want_of_descriptors_is_told_from_other_failures() {
        let short = |errno: Errno| is_short(&io::Error::from(errno));
        assert!(short(Errno::MFILE) && short(Errno::NFILE));
        assert!(!short(Errno::CONNREFUSED) && !is_short(&io::Error::other("x")));
    }

    #[test]
    fn an_address_is_the_same_in_both_families() {
        let at = |text: &str| canonical(text.parse().unwrap());
        assert_eq!(at("[::ffff:127.0.0.1]:3128"), at("127.0.0.1:3128"));
    }
}
