//! The local socket, on which programs of this host's owner publish and subscribe in the leg protocol.

pub use crate::local_client::{Publisher, ReceivedItem, StreamError, Subscriber, status};

use crate::{Streams, local_client::leg};
use std::time::Duration;
use thalweg_base::peer_source::is_owner;
use tokio::{net::UnixListener, time::sleep};

/// The pause after `accept` fails, for example for lack of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves the socket until the future is dropped.
pub async fn serve(streams: Streams, listener: UnixListener) {
    let me = rustix::process::geteuid().as_raw();
    loop {
        match listener.accept().await {
            Ok((stream, _)) if is_owner(&stream, me) => {
                let streams = streams.clone();
                tokio::spawn(async move { streams.serve_local(leg(stream)).await });
            }
            Ok(_) => {}
            Err(_) => sleep(PAUSE).await,
        }
    }
}
