//! The two doors of the API: a unix socket that the node's owner alone can open, and a port on loopback.

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
use tokio::{
    net::{TcpListener, TcpStream, UnixListener, UnixStream, unix::SocketAddr},
    sync::Semaphore,
    task::JoinSet,
    time::sleep,
};
use tokio_util::sync::CancellationToken;

/// The most connections on loopback of callers who have not shown a token or a cookie yet. Any user of this host can open
/// more.
const UNKNOWN: usize = 64;

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
#[derive(Clone, Debug, Default)]
pub struct Connection(CancellationToken);

impl Connection {
    /// Its caller has shown a token or a cookie: strangers can no longer take its place.
    pub fn set_known(&self) {
        self.0.cancel();
    }
}

/// Serves callers on loopback until `stop`; requests in progress are finished.
pub async fn serve_loopback(listener: TcpListener, router: Router, stop: CancellationToken) {
    let bounds = Bounds { all: UNKNOWN, each: UNKNOWN, grace: Some(GRACE) };
    let (unknown, known) = (FairSlots::new(bounds), Arc::new(Semaphore::new(KNOWN)));
    let mut tasks = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            Some(_) = tasks.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((tcp, _)) => {
                // A connection without a place is closed.
                if let Some(place) = unknown.enter((), 1, Instant::now()) {
                    let (router, known) = (router.clone(), known.clone());
                    tasks.spawn(answer(tcp, router, place, known, stop.clone()));
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
    router: Router,
    place: Slot<()>,
    known: Arc<Semaphore>,
    stop: CancellationToken,
) {
    // Events are small and should leave at once. If the caller has left already, this fails, and so will reads.
    _ = tcp.set_nodelay(true);
    let (connection, service) = (Connection::default(), TowerToHyperService::new(router));
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
            () = connection.0.cancelled(), if known_place.is_none() => {
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
