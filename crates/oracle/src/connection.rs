//! Serves HTTP on one connection.

use crate::{
    Caller, OracleError, Refusal,
    connection_limit::ConnectionPermit,
    limits::{BODY, FIRST_TIME, GRACE, HEAD_TIME, STRANGER_TIME},
};
use axum::{
    Extension, Router,
    body::{Body, to_bytes},
    http::Request,
    response::IntoResponse as _,
};
use hyper::{
    body::Incoming,
    server::conn::http1,
    service::{Service as _, service_fn},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use std::{future::pending, io, pin::pin, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::timeout,
};

/// The longest head of a request, bytes; the smallest buffer that hyper accepts.
const HEAD: usize = 8 * 1024;

/// The longest duration of any connection. Afterwards the node connects again and proves its key again.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// The routes that a connection is served, and its time limits.
pub(crate) struct ConnectionTerms {
    router: Router,
    /// `None` for a local process.
    place: Option<Arc<ConnectionPermit>>,
    head: Duration,
    longest: Duration,
    keep_alive: bool,
}

impl ConnectionTerms {
    /// The terms for a member or a local process.
    pub(crate) fn persistent(router: Router, place: Option<Arc<ConnectionPermit>>) -> Self {
        Self { router, place, head: HEAD_TIME, longest: LONGEST, keep_alive: true }
    }

    /// The terms for a connection with one request.
    pub(crate) fn single_request(router: Router, place: ConnectionPermit) -> Self {
        let (head, longest) = (FIRST_TIME, STRANGER_TIME);
        Self { router, place: Some(Arc::new(place)), head, longest, keep_alive: false }
    }

    /// Serves the connection until it ends.
    pub(crate) async fn serve<IO>(self, stream: IO, caller: Caller) -> io::Result<()>
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let place = self.place.clone();
        let routes = TowerToHyperService::new(self.router.layer(Extension(caller)));
        let service = service_fn(move |request: Request<Incoming>| {
            let (place, routes) = (place.clone(), routes.clone());
            async move {
                let request = match place.as_ref().is_some_and(|place| place.is_single_request()) {
                    true => match read_whole(request).await {
                        Ok(request) => request,
                        Err(refused) => return Ok(OracleError::from(refused).into_response()),
                    },
                    false => request.map(Body::new),
                };
                let busy = place.as_ref().map(ConnectionPermit::request);
                let answer = routes.call(request).await;
                drop(busy);
                answer
            }
        });
        let mut served = pin!(
            http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(self.head)
                .keep_alive(self.keep_alive)
                .max_buf_size(HEAD)
                .serve_connection(TokioIo::new(stream), service)
        );
        let whole = async {
            tokio::select! {
                done = served.as_mut() => return Ok(done),
                once = evicted(self.place.as_deref()) => if once { return Err(crowded_out()) },
            }
            // An answer that is being written is still completed.
            served.as_mut().graceful_shutdown();
            timeout(GRACE, served.as_mut()).await.map_err(|_| crowded_out())
        };
        match timeout(self.longest, whole).await {
            Ok(served) => served?.map_err(io::Error::other),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

/// Reads the request with its body. Until it is complete, the connection counts as idle and may be evicted.
async fn read_whole(request: Request<Incoming>) -> Result<Request<Body>, Refusal> {
    let (head, body) = request.into_parts();
    let read = timeout(FIRST_TIME, to_bytes(Body::new(body), BODY)).await;
    let read = read.map_err(|_| Refusal::Slow(FIRST_TIME))?;
    // Reading fails at the bound, or if the connection breaks, and then nobody reads the answer.
    let bytes = read.map_err(|_| Refusal::TooLarge(BODY))?;
    Ok(Request::from_parts(head, Body::from(bytes)))
}

/// Waits until the connection is evicted. Returns true if it was for one request, which had not arrived.
async fn evicted(place: Option<&ConnectionPermit>) -> bool {
    let Some(place) = place else { return pending().await };
    place.evicted().await;
    place.is_single_request()
}

fn crowded_out() -> io::Error {
    io::Error::new(
        io::ErrorKind::QuotaExceeded,
        "the connection was idle, and another one needed \
                                                  its place",
    )
}
