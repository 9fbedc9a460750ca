//! Carries bytes in both directions without looking at them, after `CONNECT`, a SOCKS5 reply, an upgrade, or for a
//! redirected connection.

use super::{
    dial::DialledConnection,
    event::TunnelKind,
    record::EndedTunnel,
    review::REVOKED,
    state::ProxyState,
    tunnel_rate::{LOOK, TunnelRate},
};
use bytes::Bytes;
use parking_lot::Mutex;
use std::{
    net::SocketAddr,
    sync::{OnceLock, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};
use thalweg_net::{
    legs::LegWatcher,
    liveness::Limits,
    pump::{self, Moved, ResetOnDrop, Stopped, Throttle},
};
use thalweg_paths::chooser::{Content, DIRECT, PathReport};
use thalweg_paths::history::{Bound, PathObservation};
use thalweg_units::Rate;
use thalweg_uplinks::interfaces::{CapError, Passage, PassageThrottle};
use thalweg_wire::Destination;
use tokio::{
    io::AsyncWriteExt as _,
    net::TcpStream,
    time::{MissedTickBehavior, interval},
};

/// When a tunnel is given up. Programs keep some open for a day without traffic (a shell, a chat), and TCP's keepalive
/// finds dead peers. Half-closed tunnels may wait for an answer that takes the destination long to prepare.
const LIMITS: Limits = Limits {
    idle: Duration::from_secs(24 * 3600),
    linger: Duration::from_secs(3600),
    black_hole: Duration::from_secs(60),
};

/// A detour that was sent data and has brought nothing for this long counts as failed.
const SILENT_DETOUR: Duration = Duration::from_secs(10);

/// A tunnel that is about to begin.
pub struct Tunnel {
    /// The program's address.
    pub client: SocketAddr,
    /// What asked for it.
    pub kind: TunnelKind,
    /// The program's connection.
    pub tcp: TcpStream,
    /// Bytes that the program has already sent.
    pub early: Vec<u8>,
    pub dialled: DialledConnection,
    /// Bytes that the destination has already sent.
    pub late: Bytes,
    pub to: Destination,
    /// The kind of content.
    pub content: Content,
}

/// Carries bytes until both sides have ended, and records the tunnel. Both connections are reset unless both directions
/// end regularly.
pub async fn run(shared: &ProxyState, tunnel: Tunnel) {
    let Tunnel { client, kind, tcp, early, dialled, late, to, content } = tunnel;
    let (began, moved, pace) =
        (Instant::now(), Moved::default(), Mutex::new(TunnelRate::default()));
    let DialledConnection { stream, path, setup, passage } = dialled;
    let route = stream.route().clone();
    let mut terms = pump::Terms::new(limits(route.is_direct()), &moved);
    terms.watcher = passage.as_deref().map(|passage| passage as &dyn LegWatcher);
    let tolled = passage.as_deref().filter(|passage| passage.is_limited());
    let toll = tolled.map(|passage| PassageThrottle::new(passage, &moved, route.interface()));
    terms.throttle = toll.as_ref().map(|toll| toll as &dyn Throttle);
    let cut_for = OnceLock::new();
    let cut = Box::pin(async {
        tokio::select! {
            () = shared.cut.cancelled() => {}
            () = shared.wait_for_revocation(&route) => drop(cut_for.set(REVOKED.to_owned())),
            why = watch(&moved, &pace, passage.as_deref()) => drop(cut_for.set(why.to_string())),
        }
    });
    let done = carry(ResetOnDrop::new(tcp), early, stream, late, terms, cut).await;
    let counts = (moved.up.load(Relaxed), moved.down.load(Relaxed));
    if let Some(passage) = passage {
        passage.counts(&moved);
    }
    let pace = pace.lock();
    let rate = pace.rate(began.elapsed(), counts.1);
    drop(pace);
    let seen = Observation { path: &path, setup, rate, counts, began };
    seen.tell(shared, &to, content);
    let broken = done.err().map(|stopped| cut_for.into_inner().unwrap_or(stopped.to_string()));
    let (to, path) = (to.to_string(), path.as_str());
    shared.recorder.record_tunnel(EndedTunnel {
        client,
        kind,
        to,
        path,
        moved: counts,
        began,
        broken,
    });
}

async fn carry(
    mut client: ResetOnDrop,
    early: Vec<u8>,
    stream: thalweg_net::Stream,
    late: Bytes,
    terms: pump::Terms<'_>,
    cut: impl Future<Output = ()>,
) -> Result<(), Stopped> {
    let stream = stream.into_tcp().map(ResetOnDrop::new).map_err(ResetOnDrop::new);
    client.write_all(&late).await.map_err(Stopped::Broken)?;
    match stream {
        Ok(tcp) => pump::clear(client, early, tcp, terms, cut).await,
        Err(mut stream) => {
            stream.write_all(&early).await.map_err(Stopped::Broken)?;
            stream.flush().await.map_err(Stopped::Broken)?;
            pump::sealed(client, stream, terms, cut).await
        }
    }
}

/// With relays, only the connection to the first relay is visible: once one direction has ended, a relay may still have
/// much to deliver to a slow reader.
fn limits(is_direct: bool) -> Limits {
    match is_direct {
        true => LIMITS,
        false => Limits { linger: LIMITS.idle, ..LIMITS },
    }
}

/// Measures the tunnel's rate, and watches the cap: returns only when a cap that was set after the tunnel began is used
/// up.
async fn watch(moved: &Moved, pace: &Mutex<TunnelRate>, passage: Option<&Passage>) -> CapError {
    let (mut ticks, began) = (interval(LOOK), Instant::now());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let (at, bytes) = (began.elapsed(), moved.down.load(Relaxed));
        pace.lock().observe(at, bytes);
        if let Some(passage) = passage {
            passage.counts(moved);
        }
        if let Some(over) = passage.and_then(Passage::is_over) {
            return over;
        }
    }
}

/// What a tunnel observed of its path.
struct Observation<'a> {
    path: &'a str,
    setup: Duration,
    /// The mean rate while it was busy.
    rate: Option<Rate>,
    counts: (u64, u64),
    began: Instant,
}

impl Observation<'_> {
    fn tell(&self, shared: &ProxyState, to: &Destination, content: Content) {
        let (up, down) = self.counts;
        if up > 0 && down == 0 && self.path != DIRECT && self.began.elapsed() > SILENT_DETOUR {
            return shared.chooser.learn(to, content, PathReport::Failed(self.path));
        }
        let Some(rate) = self.rate else { return };
        // The program or the server may have been the slower side.
        let (bound, setup) = (Bound::AtLeast, self.setup);
        let path = self.path.to_owned();
        shared.report_carried(to, content, &PathObservation { path, rate, setup, bound });
    }
}
