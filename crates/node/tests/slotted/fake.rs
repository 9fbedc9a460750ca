//! A dishonest intermediate.

use futures_util::future::BoxFuture;
use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};
use thalweg_files::remote::Remote;
use thalweg_mesh::{MeshPeer, member_dialer::MemberDialer, service::MemberService};
use thalweg_net::channel::Channel;
use thalweg_wire::mesh::Name;
use thalweg_wire::object::{
    Failure, MAX_REQUEST, Reply, Request, SpoolId, Ticket, TransferHash, decode, encode, length,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// What the node does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vice {
    /// It reports the right hashes and sends wrong bytes.
    Sends,
    /// It also reports the hashes of the wrong bytes.
    Tells,
    /// It claims that nothing has arrived.
    Denies,
    /// It disconnects when it is asked to fetch.
    Dies,
    /// The first parts that it reads are interrupted in the middle: the rest of them is zeros, and after the last one
    /// it says that they must be requested again.
    Breaks,
    /// The same for all parts: its file is truncated while it is read.
    Shrinks,
    /// It sends everything, and says after each part that it must be requested again.
    PutsOff,
}

/// The dishonest node.
#[derive(Clone, Debug)]
pub struct Fake {
    vice: Vice,
    dialer: Option<MemberDialer>,
    held: Arc<Mutex<BTreeMap<SpoolId, Vec<Vec<u8>>>>>,
    /// The content of its own file.
    content: Arc<Vec<u8>>,
    read: Arc<AtomicU64>,
}

impl Fake {
    pub fn new(vice: Vice) -> Self {
        Self {
            vice,
            dialer: None,
            held: Arc::default(),
            content: Arc::default(),
            read: Arc::default(),
        }
    }

    /// A source with one file.
    pub fn source(vice: Vice, content: Vec<u8>) -> Self {
        Self { content: Arc::new(content), ..Self::new(vice) }
    }

    pub fn at(self, dialer: MemberDialer) -> Self {
        Self { dialer: Some(dialer), ..self }
    }

    async fn run(&self, mut channel: Channel<TcpStream>) -> io::Result<()> {
        loop {
            let mut head = [0; 4];
            channel.read_exact(&mut head).await?;
            let mut body = vec![0; length(head, MAX_REQUEST).unwrap()];
            channel.read_exact(&mut body).await?;
            match decode(&body).unwrap() {
                Request::Drop(_) | Request::DropJob(_) => say(&mut channel, Reply::Dropped).await?,
                Request::Fetch { .. } if self.vice == Vice::Dies => return Ok(()),
                Request::Fetch { id, from, tickets, .. } => {
                    let parts = self.fetch(id, &from, tickets).await;
                    let most = 1;
                    let reply = Reply::Fetched { parts, micros: 1, most, ticket: None };
                    say(&mut channel, reply).await?;
                }
                Request::ReadParts(reads) => {
                    for read in reads {
                        self.read(&mut channel, read.from as usize, read.bytes as usize).await?;
                    }
                }
                Request::Spooled(id) => self.send(&mut channel, id).await?,
                other => panic!("{other:?}"),
            }
        }
    }

    async fn fetch(
        &self,
        id: SpoolId,
        from: &Name,
        tickets: Vec<Ticket>,
    ) -> Vec<Result<TransferHash, Failure>> {
        let mut remote = Remote::open(self.dialer.as_ref().unwrap(), from, &[]).await.unwrap();
        let (mut parts, mut told) = (Vec::new(), Vec::new());
        for ticket in tickets {
            remote.ask(&Request::Redeem(ticket)).await.unwrap();
            for _ in 0..remote.parts().await.unwrap() {
                let mut bytes = Vec::new();
                let came = remote.part(&mut bytes).await.unwrap();
                // The first byte of each part is altered.
                bytes[0] ^= 1;
                told.push(match self.vice {
                    Vice::Sends => came,
                    Vice::Denies => Err(Failure::Changed),
                    _ => Ok(TransferHash(*blake3::hash(&bytes).as_bytes())),
                });
                parts.push(bytes);
            }
            remote.end_parts().await.unwrap();
        }
        self.held.lock().unwrap().insert(id, parts);
        told
    }

    async fn read(
        &self,
        channel: &mut Channel<TcpStream>,
        from: usize,
        bytes: usize,
    ) -> io::Result<()> {
        let (mut part, before) =
            (self.content[from..from + bytes].to_vec(), self.read.fetch_add(1, Relaxed));
        let why = match self.vice {
            Vice::Breaks if before < 3 => Some(Failure::Busy),
            Vice::Shrinks => Some(Failure::Changed),
            Vice::PutsOff => Some(Failure::Busy),
            _ => None,
        };
        if why.is_some() {
            part[bytes / 2..].fill(0);
        }
        say(channel, Reply::Bytes(bytes as u64)).await?;
        channel.write_all(&part).await?;
        let check = TransferHash(*blake3::hash(&part).as_bytes());
        say(channel, why.map_or(Reply::Sent(check), Reply::Failed)).await
    }

    async fn send(&self, channel: &mut Channel<TcpStream>, id: SpoolId) -> io::Result<()> {
        let parts = self.held.lock().unwrap().remove(&id).unwrap();
        say(channel, Reply::Parts(parts.len() as u32)).await?;
        for part in parts {
            if self.vice == Vice::Denies {
                say(channel, Reply::Failed(Failure::Changed)).await?;
                continue;
            }
            say(channel, Reply::Bytes(part.len() as u64)).await?;
            channel.write_all(&part).await?;
            say(channel, Reply::Sent(TransferHash(*blake3::hash(&part).as_bytes()))).await?;
        }
        Ok(())
    }
}

async fn say(channel: &mut Channel<TcpStream>, reply: Reply) -> io::Result<()> {
    channel.write_all(&encode(&reply)).await?;
    channel.flush().await
}

impl MemberService for Fake {
    fn serve(
        &self,
        channel: Channel<TcpStream>,
        _: MeshPeer,
        _: SocketAddr,
    ) -> BoxFuture<'static, ()> {
        let this = self.clone();
        // However a connection ends, that is what this node does.
        Box::pin(async move { _ = this.run(channel).await })
    }

    fn report(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
}
