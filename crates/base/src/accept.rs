//! Accepting connections of which so many may be there at a time.

use std::{io, net::SocketAddr, sync::Arc};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};

/// A place first, then a client: the kernel's queue holds those without a place.
///
/// Cancel-safe: a place that was taken is given back.
pub async fn next(
    places: &Arc<Semaphore>,
    listener: &TcpListener,
) -> (Option<OwnedSemaphorePermit>, io::Result<(TcpStream, SocketAddr)>) {
    // It fails only when closed, which nobody does.
    let place = Arc::clone(places).acquire_owned().await.ok();
    (place, listener.accept().await)
}
