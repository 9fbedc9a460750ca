//! Tests of the pump between sealed legs, with real channels.

use super::*;
use crate::{
    PrivateKey,
    channel::{Acceptor, Admission, Connector, Protocol},
};
use std::sync::OnceLock;
use thalweg_units::NodeId;
use thalweg_wire::Signer as _;
use tokio::{io::split, sync::oneshot::Sender};

#[derive(Debug)]
struct Everybody;

impl Admission for Everybody {
    fn admits(&self, _: &NodeId, _: Protocol) -> bool {
        true
    }
}

/// Both ends of a channel: the client's and the relay's.
async fn channel() -> (Channel<TcpStream>, Channel<TcpStream>) {
    static ENDS: OnceLock<(Connector, Acceptor, NodeId)> = OnceLock::new();
    let (connector, acceptor, server) = ENDS.get_or_init(|| {
        let [client, server] = [1, 2].map(|n| PrivateKey::from_seed(&[n; 32]));
        let acceptor = Acceptor::new(&server, Arc::new(Everybody), &[Protocol::Relay]);
        (Connector::new(&client).unwrap(), acceptor.unwrap(), server.id())
    });
    let (client, near) = pair().await;
    let connecting = connector.connect(client, *server, Protocol::Relay);
    let (client, near) = tokio::join!(connecting, acceptor.accept(near));
    (client.unwrap(), near.unwrap())
}

struct Sealed {
    client: Channel<TcpStream>,
    server: TcpStream,
    moved: Arc<Moved>,
    cut: Sender<()>,
    pump: JoinHandle<Result<(), Stopped>>,
}

async fn sealed_pump() -> Sealed {
    let ((client, near), (server, far)) = (channel().await, pair().await);
    let moved = Arc::new(Moved::default());
    let (cut, cut_off) = oneshot::channel::<()>();
    let counted = Arc::clone(&moved);
    let pump = tokio::spawn(async move {
        let cut = async {
            if cut_off.await.is_err() {
                pending().await
            }
        };
        let (near, far) = (ResetOnDrop::new(near), ResetOnDrop::new(far));
        sealed(near, far, Terms::new(LIMITS, &counted), cut).await
    });
    Sealed { client, server, moved, cut, pump }
}

async fn read_channel(from: &mut Channel<TcpStream>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.read_to_end(&mut bytes).await?;
    Ok(bytes)
}

#[tokio::test]
async fn close_notify_becomes_a_fin_and_a_fin_becomes_close_notify() {
    let mut s = sealed_pump().await;
    s.client.write_all(b"question").await.unwrap();
    s.client.shutdown().await.unwrap();
    assert_eq!(read_all(&mut s.server).await.unwrap(), b"question");
    s.server.write_all(b"late answer").await.unwrap();
    drop(s.server);
    // An end without close_notify would be an error here.
    assert_eq!(read_channel(&mut s.client).await.unwrap(), b"late answer");
    s.pump.await.unwrap().unwrap();

    let mut s = sealed_pump().await;
    s.server.write_all(b"greeting").await.unwrap();
    s.server.shutdown().await.unwrap();
    assert_eq!(read_channel(&mut s.client).await.unwrap(), b"greeting");
    s.client.write_all(b"late thanks").await.unwrap();
    s.client.shutdown().await.unwrap();
    assert_eq!(read_all(&mut s.server).await.unwrap(), b"late thanks");
    drop(s.server);
    s.pump.await.unwrap().unwrap();
    let moved = [&s.moved.up, &s.moved.down].map(|n| n.load(Ordering::Relaxed));
    assert_eq!(moved, [11, 8]);
}

#[tokio::test]
async fn an_end_without_close_notify_resets_the_destination() {
    let mut s = sealed_pump().await;
    s.client.write_all(b"half of it").await.unwrap();
    s.server.read_exact(&mut [0; 10]).await.unwrap();
    SockRef::from(s.client.get_ref()).shutdown(std::net::Shutdown::Write).unwrap();
    let error = read_all(&mut s.server).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    let Err(Stopped::Broken(why)) = s.pump.await.unwrap() else { panic!("it is broken") };
    assert_eq!(why.kind(), io::ErrorKind::UnexpectedEof);
}

#[tokio::test]
async fn a_reset_of_the_destination_sends_the_client_no_close_notify() {
    let mut s = sealed_pump().await;
    s.server.write_all(b"half of it").await.unwrap();
    s.client.read_exact(&mut [0; 10]).await.unwrap();
    reset(s.server);
    let error = read_channel(&mut s.client).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    assert!(matches!(s.pump.await.unwrap(), Err(Stopped::Broken(_))));
}

#[tokio::test]
async fn bytes_that_are_no_record_break_the_connection() {
    let mut s = sealed_pump().await;
    s.client.write_all(b"sealed").await.unwrap();
    s.server.read_exact(&mut [0; 6]).await.unwrap();
    // A record of the right form that no key has sealed.
    let mut forged = vec![23, 3, 3, 0, 40];
    forged.resize(45, 7);
    s.client.get_ref().try_write(&forged).unwrap();
    assert!(read_all(&mut s.server).await.is_err());
    assert!(matches!(s.pump.await.unwrap(), Err(Stopped::Broken(_))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_million_bytes_each_way_pass_through_a_channel() {
    let Sealed { client, server, moved, cut: _cut, pump } = sealed_pump().await;
    let bytes = Arc::new(pattern(100_000_000));
    let digest = blake3::hash(&bytes);
    let ((near_in, near_out), (far_in, far_out)) = (split(client), server.into_split());
    let senders =
        [tokio::spawn(send(near_out, bytes.clone())), tokio::spawn(send(far_out, bytes.clone()))];
    let readers = [tokio::spawn(digest_of(near_in)), tokio::spawn(digest_of(far_in))];
    for reader in readers {
        assert_eq!(reader.await.unwrap(), digest);
    }
    for sender in senders {
        sender.await.unwrap();
    }
    pump.await.unwrap().unwrap();
    assert_eq!(moved.up.load(Ordering::Relaxed), 100_000_000);
    assert_eq!(moved.down.load(Ordering::Relaxed), 100_000_000);
}

async fn send(mut to: impl AsyncWriteExt + Unpin, bytes: Arc<Vec<u8>>) {
    to.write_all(&bytes).await.unwrap();
    to.shutdown().await.unwrap();
}

async fn digest_of(mut from: impl AsyncReadExt + Unpin) -> blake3::Hash {
    let (mut hasher, mut buffer) = (blake3::Hasher::new(), vec![0; 256 * 1024]);
    loop {
        match from.read(&mut buffer).await.unwrap() {
            0 => return hasher.finalize(),
            n => hasher.update(&buffer[..n]),
        };
    }
}

#[tokio::test]
async fn a_cut_resets_both_legs_of_a_channel_amid_a_flow() {
    let Sealed { mut client, mut server, moved, cut, pump } = sealed_pump().await;
    let sender = tokio::spawn(async move {
        let chunk = pattern(100_000);
        while server.write_all(&chunk).await.is_ok() {}
    });
    client.read_exact(&mut vec![0; 3_000_000]).await.unwrap();
    cut.send(()).unwrap();
    assert!(matches!(pump.await.unwrap(), Err(Stopped::Cut)));
    let passed_on = moved.down.load(Ordering::Relaxed);
    let mut rest = Vec::new();
    let error = client.read_to_end(&mut rest).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    assert!(3_000_000 + rest.len() as u64 <= passed_on);
    sender.await.unwrap();
}
