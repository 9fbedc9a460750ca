//! A test relay that can be made to fail.

#[path = "../relays/real.rs"]
mod real_relay;

pub use real_relay::real;

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

/// How a relay fails after this many bytes to its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Never,
    /// All connections close and none is accepted any more.
    Dies(u64),
    /// Connections stay open without further bytes.
    Stalls(u64),
}

/// A SOCKS5 relay that always connects to `to`, whatever the requested destination.
pub struct Directed {
    pub address: SocketAddr,
    _tasks: JoinSet<()>,
}

impl Directed {
    pub async fn start(to: SocketAddr, end: End) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(serve(listener, to, end));
        Self { address, _tasks: tasks }
    }
}

async fn serve(listener: TcpListener, to: SocketAddr, end: End) {
    let given = Arc::new(AtomicU64::new(0));
    let mut sessions = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let given = Arc::clone(&given);
                sessions.spawn(session(accepted.unwrap().0, to, end, given));
            }
            // Returning drops the listener and every session.
            Some(Ok(died)) = sessions.join_next() => if died { return },
        }
    }
}

/// Serves one client. Returns true if the relay is to die.
async fn session(mut client: TcpStream, to: SocketAddr, end: End, given: Arc<AtomicU64>) -> bool {
    let Ok(mut server) = connect(&mut client, to).await else { return false };
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let up = async { _ = tokio::io::copy(&mut from_client, &mut to_server).await };
    let down = async {
        let mut buffer = vec![0; 16 << 10];
        loop {
            let n = from_server.read(&mut buffer).await.unwrap_or(0);
            if n == 0 || to_client.write_all(&buffer[..n]).await.is_err() {
                return false;
            }
            let total = given.fetch_add(n as u64, Ordering::SeqCst) + n as u64;
            match end {
                End::Dies(limit) if total >= limit => return true,
                End::Stalls(limit) if total >= limit => std::future::pending().await,
                _ => {}
            }
        }
    };
    tokio::select! {
        died = down => died,
        () = up => false,
    }
}

/// The handshake of RFC 1928 without authentication, for IPv4 destinations, which are ignored.
async fn connect(client: &mut TcpStream, to: SocketAddr) -> std::io::Result<TcpStream> {
    let mut methods = [0; 2];
    client.read_exact(&mut methods).await?;
    client.read_exact(&mut vec![0; methods[1].into()]).await?;
    client.write_all(&[5, 0]).await?;
    client.read_exact(&mut [0; 10]).await?;
    let server = TcpStream::connect(to).await?;
    client.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await?;
    Ok(server)
}
