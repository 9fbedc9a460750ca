//! Connections that are led here: programs that know nothing of a proxy.
//!
//! Packet rules of the host (`nftables`' `redirect`) give a connection to one of these ports, and the
//! kernel tells where it was meant to go (`SO_ORIGINAL_DST`). Our own connections bear [`MARK`], which
//! the rules let pass. Or whoever supervises a program connects its sockets here, and tells it by
//! [`Meant`]. Either way it becomes a tunnel, like any other.

use super::{
    event::Kind,
    server::Led,
    shared::Shared,
    tunnel::{self, Tunnel},
};
use bytes::Bytes;
use socket2::SockRef;
use std::{
    collections::HashMap,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering::Relaxed},
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

/// The mark of our own connections: "twlg".
pub const MARK: u32 = 0x7477_6c67;

/// Wait after accept fails, e.g. for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Ports to which connections are to be led, by family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Redirected {
    /// Of IPv4's 127.0.0.1.
    pub v4: u16,
    /// Of IPv6's ::1, where there is IPv6.
    pub v6: Option<u16>,
}

/// At most so many connections that were led here and not taken yet are remembered. When that many
/// are, the `connect` of the program fails.
const MAX_MEANT: usize = 65_536;

/// Where connections were meant to go, by the address that they come from.
#[derive(Clone, Debug, Default)]
pub struct Meant(Arc<Mutex<HashMap<SocketAddr, SocketAddr>>>);

impl Meant {
    /// One will come from `from`; `false` if it cannot be remembered, as too many are.
    #[must_use]
    pub fn expect(&self, from: SocketAddr, to: SocketAddr) -> bool {
        let mut known = self.lock();
        let has_room = known.len() < MAX_MEANT;
        if has_room {
            known.insert(from, to);
        }
        has_room
    }

    /// It has come, or will not come after all.
    pub fn take(&self, from: SocketAddr) -> Option<SocketAddr> {
        self.lock().remove(&from)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SocketAddr, SocketAddr>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The ports' listeners.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    v4: Option<TcpListener>,
    v6: Option<TcpListener>,
}

impl Listeners {
    /// On free ports of the loopback.
    pub(super) async fn bind() -> io::Result<Self> {
        let v4 = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        Ok(Self { v4: Some(v4), v6: TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).await.ok() })
    }

    pub(super) fn ports(&self) -> Option<Redirected> {
        let port = |listener: &TcpListener| listener.local_addr().ok().map(|at| at.port());
        let v4 = self.v4.as_ref().and_then(port)?;
        Some(Redirected { v4, v6: self.v6.as_ref().and_then(port) })
    }

    /// Takes what comes until the proxy is told to stop.
    pub(super) fn run(self, shared: &Arc<Shared>, places: &Arc<Semaphore>) {
        for listener in [self.v4, self.v6].into_iter().flatten() {
            let (its, places) = (Arc::clone(shared), Arc::clone(places));
            shared.tracker.spawn(accept_all(its, listener, places));
        }
    }
}

async fn accept_all(shared: Arc<Shared>, listener: TcpListener, places: Arc<Semaphore>) {
    loop {
        let (place, accepted) = tokio::select! {
            () = shared.stop.cancelled() => return,
            () = shared.cut.cancelled() => return,
            next = accept::next(&places, &listener) => next,
        };
        match accepted {
            Ok((tcp, client)) => {
                shared.books.tally.connections.fetch_add(1, Relaxed);
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

/// Connects to where it was meant to go, and carries bytes.
async fn serve(shared: Arc<Shared>, tcp: TcpStream, client: SocketAddr) {
    // A program that has left already makes this fail; its reads will tell.
    _ = tcp.set_nodelay(true);
    let begun = tokio::select! {
        () = shared.cut.cancelled() => None,
        begun = begin(&shared, tcp, client) => begun,
    };
    if let Some(tunnel) = begun {
        tunnel::run(&shared, tunnel).await;
    }
}

async fn begin(shared: &Shared, tcp: TcpStream, client: SocketAddr) -> Option<Tunnel> {
    let meant = match shared.config.led {
        Led::BySupervisor => shared.meant.take(client),
        Led::ByRules | Led::Nowhere => meant(&tcp),
    };
    let Some(meant) = meant else {
        let why = "it came to the port for redirected connections by itself";
        return refuse(shared, &tcp, client, String::new(), why);
    };
    let to = Destination { host: Host::Ip(meant.ip()), port: meant.port() };
    let content = Content::of_port(to.port);
    // Rules change where packets go, not what the program's socket says.
    let far = match shared.config.led {
        Led::BySupervisor => tcp.local_addr().ok(),
        Led::ByRules | Led::Nowhere => Some(meant),
    };
    match shared.reach(&Client::at(client, far), &to, content).await {
        Ok(dialled) => {
            let (kind, early, late) = (Kind::Redirected, Vec::new(), Bytes::new());
            Some(Tunnel { client, kind, tcp, early, dialled, late, to, content })
        }
        Err(no) => refuse(shared, &tcp, client, to.to_string(), &no.to_string()),
    }
}

/// Where a connection was meant to go, if the kernel led it here.
fn meant(tcp: &TcpStream) -> Option<SocketAddr> {
    let own = tcp.local_addr().ok()?;
    let socket = SockRef::from(tcp);
    let found = match own.ip() {
        IpAddr::V4(_) => socket.original_dst_v4(),
        IpAddr::V6(_) => socket.original_dst_v6(),
    };
    let meant = found.ok()?.as_socket()?;
    (meant != own).then_some(meant)
}

/// The program sees its connection reset: it was told already that it stands.
fn refuse(
    shared: &Shared,
    tcp: &TcpStream,
    client: SocketAddr,
    to: String,
    why: &str,
) -> Option<Tunnel> {
    shared.books.refused(client, to, why.to_owned());
    _ = SockRef::from(tcp).set_linger(Some(Duration::ZERO));
    None
}
