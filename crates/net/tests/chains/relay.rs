//! A minimal relay, for the tests of chains.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicUsize, Ordering},
    },
};
use thalweg_net::{
    Destination, PrivateKey,
    channel::{Acceptor, Admission, Channel, Protocol},
    socks5::read_message,
};
use thalweg_units::NodeId;
use thalweg_wire::{
    Signer as _,
    mesh::{GO, GO_ACK, LegKind, METHOD, Preamble, RelayRequest},
    socks5::{self, Reply, VERSION},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpStream},
};

pub fn key(seed: u8) -> PrivateKey {
    PrivateKey::from_seed(&[seed; 32])
}

#[derive(Debug)]
struct Only(NodeId);

impl Admission for Only {
    fn admits(&self, key: &NodeId, _: Protocol) -> bool {
        *key == self.0
    }
}

/// A running relay.
pub struct Relay {
    pub at: Destination,
    pub key: NodeId,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    depth: AtomicU8,
    accepted: AtomicUsize,
}

impl Relay {
    /// Starts the relay with key `seed`, which admits only the client with key `client`.
    pub async fn start(seed: u8, client: u8) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at: Destination = listener.local_addr().unwrap().into();
        let admission = Arc::new(Only(key(client).id()));
        let acceptor = Acceptor::new(&key(seed), admission, &[Protocol::Relay]).unwrap();
        let seen = Arc::new(Seen::default());
        let relay = Self { at, key: key(seed).id(), seen: seen.clone() };
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                seen.accepted.fetch_add(1, Ordering::SeqCst);
                let (acceptor, seen) = (acceptor.clone(), seen.clone());
                tokio::spawn(async move {
                    let Ok(channel) = acceptor.accept(tcp).await else { return };
                    seen.depth.store(channel.depth(), Ordering::SeqCst);
                    // A broken session shows at its client.
                    let _ = serve(channel).await;
                });
            }
        });
        relay
    }

    pub fn depth(&self) -> u8 {
        self.seen.depth.load(Ordering::SeqCst)
    }

    pub fn accepted(&self) -> usize {
        self.seen.accepted.load(Ordering::SeqCst)
    }
}

async fn serve(mut channel: Channel<TcpStream>) -> io::Result<()> {
    let mut methods = [0; 3];
    channel.read_exact(&mut methods).await?;
    assert_eq!(methods, [VERSION, 1, METHOD]);
    let mut head = [0; 2];
    channel.read_exact(&mut head).await?;
    let mut body = vec![0; RelayRequest::length(head).unwrap()];
    channel.read_exact(&mut body).await?;
    let RelayRequest { terms, next } = RelayRequest::decode(&body).unwrap();
    channel.write_all(&socks5::encode_method(METHOD)).await?;
    let preamble = next.map(|_| Preamble { depth: channel.depth() + 1 });
    let Some(mut out) = connect(&mut channel, preamble).await? else {
        return channel.shutdown().await;
    };
    if terms.leg == LegKind::Sealed {
        return copy_bidirectional(&mut channel, &mut out).await.map(drop);
    }
    channel.write_all(&[GO]).await?;
    channel.flush().await?;
    assert_eq!(channel.read_u8().await?, GO_ACK);
    let (mut clear, first) = channel.into_clear()?;
    out.write_all(&first).await?;
    copy_bidirectional(&mut clear, &mut out).await.map(drop)
}

/// Reads the request, connects and replies.
async fn connect<S>(client: &mut S, preamble: Option<Preamble>) -> io::Result<Option<TcpStream>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let asked = read_message(client, socks5::decode_request).await.map_err(io::Error::other)?;
    let to = asked.address().unwrap();
    let mut out = match TcpStream::connect(to).await {
        Ok(out) => out,
        Err(_) => {
            client.write_all(&socks5::encode_reply(Reply::ConnectionRefused, to)).await?;
            client.flush().await?;
            return Ok(None);
        }
    };
    if let Some(preamble) = preamble {
        out.write_all(&preamble.encode()).await?;
    }
    client.write_all(&socks5::encode_reply(Reply::Succeeded, to)).await?;
    client.flush().await?;
    Ok(Some(out))
}

/// A plain SOCKS5 relay for one client, without a mesh.
pub async fn plain() -> Destination {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap().into();
    tokio::spawn(async move {
        let (mut client, _) = listener.accept().await?;
        client.read_exact(&mut [0; 3]).await?;
        client.write_all(&socks5::encode_method(socks5::NO_AUTHENTICATION)).await?;
        match connect(&mut client, None).await? {
            Some(mut out) => copy_bidirectional(&mut client, &mut out).await.map(drop),
            None => Ok(()),
        }
    });
    at
}
