//! The two doors of the API: a unix socket that the node's owner alone can open, and a port on loopback.

use super::Api;
use axum::{Router, extract::Request, serve::Listener};
use hyper::{
    body::Incoming,
    server::conn::http1,
    service::{Service as _, service_fn},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use std::{
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};
use thalweg_base::{
    fair_slots::{Bounds, FairSlots, Slot},
    peer_source::is_owner,
};
use thalweg_uplinks::interfaces::user_at;
use tokio::{
    net::{TcpListener, TcpStream, UnixListener, UnixStream, unix::SocketAddr},
    sync::Semaphore,
    task::{JoinSet, spawn_blocking},
    time::sleep,
};
use tokio_util::sync::CancellationToken;

/// The most connections on loopback of the node's user and root who have not shown a token or a cookie yet.
const OWN_UNKNOWN: usize = 64;

/// The most such connections of all other users of this host together. They have places of their own, so that they take
/// none of the owner's.
const OTHERS_UNKNOWN: usize = 64;

/// The most of these of one user: a browser opens six. At the bound, the user that holds the most loses one first.
const EACH_UNKNOWN: usize = 16;

/// Such a connection older than this is closed if a new one needs its place.
const GRACE: Duration = Duration::from_secs(1);

/// The most connections of callers who have: a browser opens six, and one for each stream of events.
const KNOWN: usize = 128;

/// The time limit for a request's head; also of the wait for a further request.
const HEAD_TIME: Duration = Duration::from_secs(30);

/// The pause after a failed accept, as at the mesh port: without descriptors, it waits for some.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Binds the socket, mode 0600, in place of one that a daemon left behind.
///
/// The caller must hold the state directory's lock; otherwise the socket of a running daemon would be taken away. Only
/// its owner can enter the directory (0700), so that nobody connects before the mode is set.
///
/// # Errors
/// The system's.
pub fn bind(path: &Path) -> io::Result<UnixListener> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Serves the owner until `stop`; requests in progress are finished.
pub async fn serve_socket(listener: UnixListener, router: Router, stop: CancellationToken) {
    let serving = axum::serve(OwnerListener(listener), router);
    // Serving ends only when told to, and never with an error.
    _ = serving.with_graceful_shutdown(stop.cancelled_owned()).await;
}

/// Admits the user that this process runs as, and root; others are closed without a byte.
struct OwnerListener(UnixListener);

impl Listener for OwnerListener {
    type Io = UnixStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (UnixStream, SocketAddr) {
        let me = rustix::process::geteuid().as_raw();
        loop {
            match self.0.accept().await {
                Ok((stream, from)) if is_owner(&stream, me) => return (stream, from),
                Ok(_) => {}
                Err(_) => sleep(ACCEPT_PAUSE).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

/// A connection on loopback, as its requests see it.
#[derive(Clone, Debug)]
pub struct Connection {
    /// The user of this host at its other end; `None`: the system does not say.
    user: Option<u32>,
    known: CancellationToken,
}

impl Connection {
    async fn of(tcp: &TcpStream) -> Self {
        let user = match (tcp.peer_addr(), tcp.local_addr()) {
            // The kernel answers at once, but where it does not know the question, `/proc` must be read.
            (Ok(theirs), Ok(ours)) => {
                spawn_blocking(move || user_at(theirs, ours)).await.ok().flatten()
            }
            _ => None,
        };
        Self { user, known: CancellationToken::new() }
    }

    /// The user of this host at its other end; `None`: the system does not say.
    pub fn user(&self) -> Option<u32> {
        self.user
    }

    /// Its caller has shown a token or a cookie: strangers can no longer take its place.
    pub fn set_known(&self) {
        self.known.cancel();
    }
}

/// The places of connections on loopback.
struct Places {
    own: FairSlots<Option<u32>>,
    others: FairSlots<Option<u32>>,
    known: Arc<Semaphore>,
}

impl Places {
    fn new() -> Self {
        let places = |all, each| FairSlots::new(Bounds { all, each, grace: Some(GRACE) });
        Self {
            own: places(OWN_UNKNOWN, OWN_UNKNOWN),
            others: places(OTHERS_UNKNOWN, EACH_UNKNOWN),
            known: Arc::new(Semaphore::new(KNOWN)),
        }
    }

    /// A place for a connection of this user who has not shown anything yet.
    fn enter(&self, user: Option<u32>, is_owner: bool, now: Instant) -> Option<Slot<Option<u32>>> {
        let places = if is_owner { &self.own } else { &self.others };
        places.enter(user, 1, now)
    }
}

/// Serves callers on loopback until the daemon stops; requests in progress are finished.
pub async fn serve_loopback(listener: TcpListener, api: &Arc<Api>) {
    let Ok(door) = &api.page else { return };
    let (router, stop, places) = (api.loopback_router(), &api.stop, Places::new());
    let mut tasks = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            Some(_) = tasks.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((tcp, _)) => {
                let connection = Connection::of(&tcp).await;
                let is_owner = door.guard.is_owner(connection.user);
                // A connection without a place is closed.
                if let Some(place) = places.enter(connection.user, is_owner, Instant::now()) {
                    let (router, known) = (router.clone(), places.known.clone());
                    tasks.spawn(answer(tcp, connection, router, place, known, api.clone()));
                }
            }
            Err(_) => sleep(ACCEPT_PAUSE).await,
        }
    }
    drop(listener);
    while tasks.join_next().await.is_some() {}
}

/// Answers the requests of one connection.
async fn answer(
    tcp: TcpStream,
    connection: Connection,
    router: Router,
    place: Slot<Option<u32>>,
    known: Arc<Semaphore>,
    api: Arc<Api>,
) {
    let Ok(door) = &api.page else { return };
    let (mut revoked, stop) = (pin!(door.credentials.revoked()), &api.stop);
    // Events are small and should leave at once. If the caller has left already, this fails, and so will reads.
    _ = tcp.set_nodelay(true);
    let service = TowerToHyperService::new(router);
    let of_request = connection.clone();
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(of_request.clone());
        service.call(request)
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME);
    let mut serving = pin!(http.serve_connection(TokioIo::new(tcp), service));
    let (mut place, mut known_place, mut is_ending) = (Some(place), None, false);
    loop {
        let evicted = async {
            match &place {
                Some(place) => place.evicted().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // Errors need no report: the caller sees that the connection ends.
            _ = serving.as_mut() => break,
            () = evicted => break,
            // What its caller has shown is no longer valid.
            () = revoked.as_mut() => break,
            () = connection.known.cancelled(), if known_place.is_none() => {
                let Ok(free) = known.clone().try_acquire_owned() else { break };
                (place, known_place) = (None, Some(free));
            }
            () = stop.cancelled(), if !is_ending => {
                is_ending = true;
                serving.as_mut().graceful_shutdown();
            }
        }
    }
}
