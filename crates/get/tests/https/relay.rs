//! A test relay that records its traffic and may alter it.

#[path = "../relays/real.rs"]
mod real_relay;

pub use real_relay::real;

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};

/// What the relay does to the bytes of a server's answer.
#[derive(Clone)]
pub enum Deed {
    Nothing,
    /// Flips a bit of the byte at this position in each connection's answer.
    Flips(usize),
    /// Delays them until this turns true.
    Waits(watch::Receiver<bool>),
}

/// A SOCKS5 relay that always connects to `to`, whatever the requested destination, and records all bytes.
pub struct Spy {
    pub address: SocketAddr,
    seen: Arc<Mutex<Vec<u8>>>,
    _tasks: JoinSet<()>,
}

impl Spy {
    pub async fn start(to: SocketAddr, deed: Deed) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::default();
        let mut tasks = JoinSet::new();
        let notes = Arc::clone(&seen);
        tasks.spawn(async move {
            let mut sessions = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                sessions.spawn(session(client, to, deed.clone(), Arc::clone(&notes)));
            }
        });
        Self { address, seen, _tasks: tasks }
    }

    /// All bytes of both directions.
    pub fn seen(&self) -> Vec<u8> {
        self.seen.lock().unwrap().clone()
    }
}

async fn session(
    mut client: TcpStream,
    to: SocketAddr,
    deed: Deed,
    seen: Arc<Mutex<Vec<u8>>>,
) -> std::io::Result<()> {
    // RFC 1928 with no authentication: the methods, and a name or an IPv4 address.
    let mut methods = [0; 2];
    client.read_exact(&mut methods).await?;
    client.read_exact(&mut vec![0; methods[1].into()]).await?;
    client.write_all(&[5, 0]).await?;
    let mut head = [0; 5];
    client.read_exact(&mut head).await?;
    let rest = if head[3] == 3 { usize::from(head[4]) + 2 } else { 5 };
    client.read_exact(&mut vec![0; rest]).await?;
    let mut server = TcpStream::connect(to).await?;
    client.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await?;
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let up = carry(&mut from_client, &mut to_server, Deed::Nothing, &seen);
    let down = carry(&mut from_server, &mut to_client, deed, &seen);
    tokio::try_join!(up, down).map(|_| ())
}

async fn carry(
    from: &mut (impl AsyncReadExt + Unpin),
    to: &mut (impl AsyncWriteExt + Unpin),
    mut deed: Deed,
    seen: &Mutex<Vec<u8>>,
) -> std::io::Result<()> {
    let (mut buffer, mut at) = (vec![0; 16 << 10], 0);
    loop {
        let n = from.read(&mut buffer).await?;
        if n == 0 {
            return to.shutdown().await;
        }
        match &mut deed {
            Deed::Nothing => {}
            Deed::Flips(place) if (at..at + n).contains(place) => buffer[*place - at] ^= 1,
            Deed::Flips(_) => {}
            Deed::Waits(go) => _ = go.wait_for(|go| *go).await,
        }
        seen.lock().unwrap().extend_from_slice(&buffer[..n]);
        to.write_all(&buffer[..n]).await?;
        at += n;
    }
}
