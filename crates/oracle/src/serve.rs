//! HTTP on one connection.

use crate::{
    Caller, Oracle, api,
    limits::{FIRST_TIME, GRACE, HEAD_TIME, STRANGER_TIME},
    places::{Party, Place},
};
use axum::{Extension, Router};
use hyper::{
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

/// The longest head of a request; hyper takes no smaller buffer.
const HEAD: usize = 8 * 1024;

/// The longest that any connection is served: then a node connects anew, and proves its key.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// What a connection is served, and for how long.
struct Terms {
    router: Router,
    /// None: a local process's.
    place: Option<Arc<Place>>,
    head: Duration,
    longest: Duration,
    keep_alive: bool,
}

impl Oracle {
    /// The routes; each request needs a [`Caller`] in its extensions.
    pub fn router(&self) -> Router {
        api::router(self.clone())
    }

    /// Answers the requests of one connection, until it ends. A member has 16 at a time;
    /// for a further one, that which was idle for longest is closed. Strangers (keys of no
    /// member) are served as on [`serve_join`](Self::serve_join), with refusals.
    ///
    /// # Errors
    /// When the connection breaks, sends what is no HTTP, takes too long or gives way.
    pub async fn serve<IO>(&self, stream: IO, caller: Caller) -> io::Result<()>
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let newest = self.newest();
        let party = match caller.key().map(|key| newest.roster.by_key(&key)) {
            None => None,
            Some(Some(member)) => Some(Party::Member(member.principal())),
            Some(None) => return self.serve_once(stream, caller, self.router()).await,
        };
        drop(newest);
        let place = party.map(|party| self.inner.members.enter(party));
        if let Some(None) = place {
            return self.turn_away(stream, caller).await;
        }
        let place = place.flatten().map(Arc::new);
        let (head, longest) = (HEAD_TIME, LONGEST);
        let terms = Terms { router: self.router(), place, head, longest, keep_alive: true };
        conduct(stream, caller, terms).await
    }

    /// Answers one request to join, of whichever key, and no other: 404. The request has
    /// 5 s to come, all together half a minute.
    ///
    /// 64 such connections are served at a time, 8 of one IPv4 address or IPv6 /64; beyond
    /// that the oldest without a request is closed, and if all have one, a further one is
    /// answered 503.
    ///
    /// # Errors
    /// As of [`serve`](Self::serve).
    pub async fn serve_join<IO>(&self, stream: IO, caller: Caller) -> io::Result<()>
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        self.serve_once(stream, caller, api::join_router(self.clone())).await
    }

    async fn serve_once<IO>(&self, stream: IO, caller: Caller, router: Router) -> io::Result<()>
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        match self.inner.strangers.enter(Party::network(&caller)) {
            Some(place) => conduct(stream, caller, Terms::once(router, place)).await,
            None => self.turn_away(stream, caller).await,
        }
    }

    /// Answers one request that there are too many connections.
    async fn turn_away<IO>(&self, stream: IO, caller: Caller) -> io::Result<()>
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let full = || io::Error::new(io::ErrorKind::QuotaExceeded, "too many connections at once");
        let place = self.inner.turned_away.enter(Party::network(&caller)).ok_or_else(full)?;
        conduct(stream, caller, Terms::once(api::crowded_router(), place)).await
    }
}

impl Terms {
    fn once(router: Router, place: Place) -> Self {
        let (head, longest) = (FIRST_TIME, STRANGER_TIME);
        Self { router, place: Some(Arc::new(place)), head, longest, keep_alive: false }
    }
}

async fn conduct<IO>(stream: IO, caller: Caller, terms: Terms) -> io::Result<()>
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let place = terms.place.clone();
    let routes = TowerToHyperService::new(terms.router.layer(Extension(caller)));
    let service = service_fn(move |request| {
        let (busy, answer) = (place.as_ref().map(Place::request), routes.call(request));
        async move {
            let answer = answer.await;
            drop(busy);
            answer
        }
    });
    let mut served = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(terms.head)
            .keep_alive(terms.keep_alive)
            .max_buf_size(HEAD)
            .serve_connection(TokioIo::new(stream), service)
    );
    let whole = async {
        tokio::select! {
            done = served.as_mut() => return Ok(done),
            once = lost(terms.place.as_deref()) => if once { return Err(crowded_out()) },
        }
        // An answer that is on its way still goes out.
        served.as_mut().graceful_shutdown();
        timeout(GRACE, served.as_mut()).await.map_err(|_| crowded_out())
    };
    match timeout(terms.longest, whole).await {
        Ok(served) => served?.map_err(io::Error::other),
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// Returns when the place is another's: whether it was for one request, which did not come.
async fn lost(place: Option<&Place>) -> bool {
    let Some(place) = place else { return pending().await };
    place.lost().await;
    place.once()
}

fn crowded_out() -> io::Error {
    io::Error::new(io::ErrorKind::QuotaExceeded, "idle while others wanted its place")
}
