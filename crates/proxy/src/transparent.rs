//! Redirected connections, of programs without proxy settings.
//!
//! Packet rules of the host (`nftables`' `redirect`) redirect a connection to one of these ports, and the kernel keeps
//! its original destination (`SO_ORIGINAL_DST`). The proxy's own connections carry [`MARK`], which the rules exempt. Or
//! the supervisor that started the program (`thalweg run`) connects the program's sockets to these ports, and registers
//! the intended destination in [`RedirectDestinations`]. Either way the connection becomes a tunnel like any other.

use super::{
    event::TunnelKind,
    server::RedirectSource,
    state::ProxyState,
    tunnel::{self, Tunnel},
};
use bytes::Bytes;
use parking_lot::Mutex;
use socket2::SockRef;
use std::{
    collections::HashMap,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};
use thalweg_base::accept;
use thalweg_paths::chooser::Content;
use thalweg_uplinks::interfaces::Client;
use thalweg_wire::{Destination, Host};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::sleep,
};

/// The packet mark of the proxy's own connections: "twlg" in ASCII.
pub const MARK: u32 = 0x7477_6c67;

/// Wait after accept fails, e.g. for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The ports for redirected connections, by family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RedirectPorts {
    pub v4: u16,
    /// On ::1, if there is IPv6.
    pub v6: Option<u16>,
}

/// The most expected connections that are remembered until they arrive. Beyond that, the `connect` of the program
/// fails.
const MAX_EXPECTED: usize = 65_536;

/// The destinations of redirected connections, by the addresses that they come from.
#[derive(Clone, Debug, Default)]
pub struct RedirectDestinations(Arc<Mutex<HashMap<SocketAddr, SocketAddr>>>);

impl RedirectDestinations {
    /// Records that a connection from the address `from` is meant for `to`. Returns `false`, and records nothing, if
    /// too many are recorded already.
    #[must_use]
    pub fn expect(&self, from: SocketAddr, to: SocketAddr) -> bool {
        let mut known = self.0.lock();
        let has_room = known.len() < MAX_EXPECTED;
        if has_room {
            known.insert(from, to);
        }
        has_room
    }

    /// Removes and returns the destination of a connection that has arrived, or that will not arrive.
    pub fn take(&self, from: SocketAddr) -> Option<SocketAddr> {
        self.0.lock().remove(&from)
    }
}

/// The listeners on these ports.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    v4: Option<TcpListener>,
    v6: Option<TcpListener>,
}

impl Listeners {
    /// Listens on free ports of the loopback.
    pub(super) async fn bind() -> io::Result<Self> {
        let v4 = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        Ok(Self { v4: Some(v4), v6: TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).await.ok() })
    }

    pub(super) fn ports(&self) -> Option<RedirectPorts> {
        let port = |listener: &TcpListener| listener.local_addr().ok().map(|at| at.port());
        let v4 = self.v4.as_ref().and_then(port)?;
        Some(RedirectPorts { v4, v6: self.v6.as_ref().and_then(port) })
    }

    /// Accepts connections until the proxy shuts down.
    pub(super) fn run(self, shared: &Arc<ProxyState>, places: &Arc<Semaphore>) {
        for listener in [self.v4, self.v6].into_iter().flatten() {
            let (its, places) = (Arc::clone(shared), Arc::clone(places));
            shared.tracker.spawn(accept_all(its, listener, places));
        }
    }
}

async fn accept_all(shared: Arc<ProxyState>, listener: TcpListener, places: Arc<Semaphore>) {
    loop {
        let (place, accepted) = tokio::select! {
            () = shared.stop.cancelled() => return,
            () = shared.cut.cancelled() => return,
            next = accept::next(&places, &listener) => next,
        };
        match accepted {
            Ok((tcp, client)) => {
                shared.recorder.tally.connections.fetch_add(1, Relaxed);
                let its = Arc::clone(&shared);
                shared.tracker.spawn(async move {
                    serve(its, tcp, client).await;
                    drop(place);
                });
            }
            Err(_) => sleep(ACCEPT_PAUSE).await,
        }
    }
}

/// Connects to the original destination, and carries bytes.
async fn serve(shared: Arc<ProxyState>, tcp: TcpStream, client: SocketAddr) {
    // It fails if the program has left already, which its reads will tell.
    _ = tcp.set_nodelay(true);
    let begun = tokio::select! {
        () = shared.cut.cancelled() => None,
        begun = begin(&shared, tcp, client) => begun,
    };
    if let Some(tunnel) = begun {
        tunnel::run(&shared, tunnel).await;
    }
}

async fn begin(shared: &ProxyState, tcp: TcpStream, client: SocketAddr) -> Option<Tunnel> {
    let meant = match shared.config.redirect_source {
        RedirectSource::Supervisor => shared.redirect_destinations.take(client),
        RedirectSource::Rules | RedirectSource::None => original_destination(&tcp),
    };
    let Some(meant) = meant else {
        let why = "the connection was not redirected, but made directly to the port for redirected connections";
        return refuse(shared, &tcp, client, String::new(), why);
    };
    let to = Destination { host: Host::Ip(meant.ip()), port: meant.port() };
    let content = Content::of_port(to.port);
    // Rules change where packets go, not the peer address of the program's socket.
    let far = match shared.config.redirect_source {
        RedirectSource::Supervisor => tcp.local_addr().ok(),
        RedirectSource::Rules | RedirectSource::None => Some(meant),
    };
    match shared.connect(&Client::at(client, far), &to, content).await {
        Ok(dialled) => {
            let (kind, early, late) = (TunnelKind::Redirected, Vec::new(), Bytes::new());
            Some(Tunnel { client, kind, tcp, early, dialled, late, to, content })
        }
        Err(error) => refuse(shared, &tcp, client, to.to_string(), &error.to_string()),
    }
}

/// The original destination of a connection, if the kernel redirected it here.
fn original_destination(tcp: &TcpStream) -> Option<SocketAddr> {
    let own = tcp.local_addr().ok()?;
    let socket = SockRef::from(tcp);
    let found = match own.ip() {
        IpAddr::V4(_) => socket.original_dst_v4(),
        IpAddr::V6(_) => socket.original_dst_v6(),
    };
    let meant = found.ok()?.as_socket()?;
    (meant != own).then_some(meant)
}

/// Resets the program's connection: for the program it is already established, so only a reset can report the failure.
fn refuse(
    shared: &ProxyState,
    tcp: &TcpStream,
    client: SocketAddr,
    to: String,
    why: &str,
) -> Option<Tunnel> {
    shared.recorder.record_refusal(client, to, why.to_owned());
    _ = SockRef::from(tcp).set_linger(Some(Duration::ZERO));
    None
}
