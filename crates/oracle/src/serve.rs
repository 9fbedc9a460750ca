//! HTTP on one connection.

use crate::{
    Caller, Oracle, api,
    limits::{HEAD_TIME, STRANGER_TIME},
};
use axum::Extension;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use std::{io, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::timeout,
};

/// The longest head of a request; hyper takes no smaller buffer.
const HEAD: usize = 8 * 1024;

/// The longest that any connection is served: then a node connects anew, and proves its key.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

impl Oracle {
    /// The routes; each request needs a [`Caller`] in its extensions.
    pub fn router(&self) -> axum::Router {
        api::router(self.clone())
    }

    /// Answers the requests of one connection, until it ends. Strangers (keys of no member)
    /// have one request and half a minute, and are 64 at a time; further ones are closed.
    ///
    /// # Errors
    /// When the connection breaks, sends what is no HTTP, or takes too long.
    pub async fn serve<IO>(&self, stream: IO, caller: Caller) -> io::Result<()>
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let stranger = caller.key().is_some_and(|k| self.newest().roster.by_key(&k).is_none());
        if !stranger {
            return self.serve_for(stream, caller, LONGEST, true).await;
        }
        let full = |_| io::Error::new(io::ErrorKind::QuotaExceeded, "too many strangers at once");
        let _place = self.inner.strangers.try_acquire().map_err(full)?;
        self.serve_for(stream, caller, STRANGER_TIME, false).await
    }

    async fn serve_for<IO>(
        &self,
        stream: IO,
        caller: Caller,
        longest: Duration,
        keep_alive: bool,
    ) -> io::Result<()>
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let service = TowerToHyperService::new(self.router().layer(Extension(caller)));
        let served = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIME)
            .keep_alive(keep_alive)
            .max_buf_size(HEAD)
            .serve_connection(TokioIo::new(stream), service);
        match timeout(longest, served).await {
            Ok(served) => served.map_err(io::Error::other),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}
