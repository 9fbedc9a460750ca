//! Accepts connections, of which only a limited number may be open at a time.

use std::{io, net::SocketAddr, sync::Arc};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};

/// Waits for a place and then for a client. Clients without a place stay in the kernel's queue.
///
/// Cancel-safe: a place that was taken is returned.
pub async fn next(
    places: &Arc<Semaphore>,
    listener: &TcpListener,
) -> (Option<OwnedSemaphorePermit>, io::Result<(TcpStream, SocketAddr)>) {
    // This fails only if the semaphore is closed, which never happens.
    let place = Arc::clone(places).acquire_owned().await.ok();
    (place, listener.accept().await)
}
