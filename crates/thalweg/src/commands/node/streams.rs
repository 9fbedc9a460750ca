//! Streams of the daemon: serves their local socket to programs.

use super::socket_file::SocketFile;
use std::path::PathBuf;
use thalweg_base::log::{Event, Log};
use thalweg_node::daemon::bind_local;
use thalweg_stream::{Streams, local};

/// Binds the socket now, so that programs find it as soon as the daemon serves. The future serves it forever.
pub(super) fn run(streams: Streams, socket: PathBuf, log: Log) -> impl Future<Output = ()> {
    let bound = bind_local(&socket);
    async move {
        let _end = EndOnDrop(streams.clone());
        match bound {
            Ok(listener) => {
                let _removed = SocketFile(socket);
                local::serve(streams, listener).await;
            }
            Err(why) => {
                let event = Event::new("no_stream_socket").with("at", socket.display());
                log.put(event.with("why", why));
                std::future::pending::<()>().await;
            }
        }
    }
}

/// Ends the streams when dropped.
struct EndOnDrop(Streams);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end();
    }
}
