//! Tests of the end of TLS within a connection: no byte is lost, doubled or misread, however the stream is split.
#![expect(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;
use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};
use thalweg_net::{
    PrivateKey,
    channel::{Acceptor, Admission, Channel, Connector, Protocol},
};
use thalweg_units::NodeId;
use thalweg_wire::{
    Signer as _,
    mesh::{GO, GO_ACK},
};
use tokio::{
    io::{
        AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex, split,
    },
    runtime::Builder,
};

#[derive(Debug)]
struct Everybody;

impl Admission for Everybody {
    fn admits(&self, _: &NodeId, _: Protocol) -> bool {
        true
    }
}

/// A connection whose reads and writes move the given numbers of bytes, in turn; 0 means pending.
struct Cut {
    io: DuplexStream,
    sizes: Vec<usize>,
    /// Separate indices for reads and writes; otherwise one could always get the zeros.
    turns: [usize; 2],
}

impl Cut {
    fn next(&mut self, which: usize, cx: &mut Context<'_>) -> Poll<usize> {
        self.turns[which] += 1;
        match self.sizes[self.turns[which] % self.sizes.len()] {
            0 => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            n => Poll::Ready(n),
        }
    }
}

impl AsyncRead for Cut {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let n = std::task::ready!(self.next(0, cx));
        let mut part = buf.take(n);
        let polled = Pin::new(&mut self.io).poll_read(cx, &mut part);
        let filled = part.filled().len();
        buf.advance(filled);
        polled
    }
}

impl AsyncWrite for Cut {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let n = std::task::ready!(self.next(1, cx)).min(buf.len());
        Pin::new(&mut self.io).poll_write(cx, &buf[..n])
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

/// The end that sends clear bytes before it has received any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    Server,
    Client,
    Both,
}

#[derive(Clone, Debug)]
struct Case {
    first: First,
    /// Plaintext before GO, from the client and from the server.
    sealed: [usize; 2],
    /// Clear bytes, from the client and from the server.
    clear: [usize; 2],
    client_cuts: Vec<usize>,
    server_cuts: Vec<usize>,
    /// The capacity of the connection in each direction.
    room: usize,
}

/// Bytes that depend on their source and position.
fn pattern(n: usize, seed: usize) -> Vec<u8> {
    (0..n).map(|i| (i * 31 + i / 251 + seed) as u8).collect()
}

async fn expect<R: AsyncRead + Unpin>(from: &mut R, n: usize, seed: usize) {
    let mut seen = vec![0; n];
    from.read_exact(&mut seen).await.unwrap();
    assert!(seen == pattern(n, seed), "{n} bytes of {seed} came otherwise");
}

/// Exchanges clear bytes, some of which were already read, and then both ends.
async fn clear(
    end: (Cut, Vec<u8>),
    speaks_first: bool,
    send: (usize, usize),
    want: (usize, usize),
) {
    let (io, early) = end;
    let (read, mut write) = split(io);
    let mut read = (&early[..]).chain(read);
    let receive = async {
        expect(&mut read, want.0, want.1).await;
        assert_eq!(read.read(&mut [0]).await.unwrap(), 0, "nothing follows");
    };
    let sent = async {
        write.write_all(&pattern(send.0, send.1)).await.unwrap();
        write.shutdown().await.unwrap();
    };
    if speaks_first {
        tokio::join!(sent, receive);
    } else {
        receive.await;
        sent.await;
    }
}

async fn client(case: &Case, mut channel: Channel<Cut>) {
    channel.write_all(&pattern(case.sealed[0], 1)).await.unwrap();
    channel.flush().await.unwrap();
    expect(&mut channel, case.sealed[1], 2).await;
    assert_eq!(channel.read_u8().await.unwrap(), GO);
    channel.write_all(&[GO_ACK]).await.unwrap();
    channel.flush().await.unwrap();
    let end = channel.into_clear().unwrap();
    clear(end, case.first != First::Server, (case.clear[0], 3), (case.clear[1], 4)).await;
}

async fn server(case: &Case, mut channel: Channel<Cut>) {
    expect(&mut channel, case.sealed[0], 1).await;
    let last = [&pattern(case.sealed[1], 2)[..], &[GO]].concat();
    channel.write_all(&last).await.unwrap();
    channel.flush().await.unwrap();
    assert_eq!(channel.read_u8().await.unwrap(), GO_ACK);
    let end = channel.into_clear().unwrap();
    clear(end, case.first != First::Client, (case.clear[1], 4), (case.clear[0], 3)).await;
}

fn run(case: &Case) {
    let (near, far) = duplex(case.room);
    let near = Cut { io: near, sizes: case.client_cuts.clone(), turns: [0; 2] };
    let far = Cut { io: far, sizes: case.server_cuts.clone(), turns: [0; 2] };
    let [theirs, ours] = [1, 2].map(|seed| PrivateKey::from_seed(&[seed; 32]));
    let acceptor = Acceptor::new(&theirs, Arc::new(Everybody), &[Protocol::Relay]).unwrap();
    let connector = Connector::new(&ours).unwrap();
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let near = async {
            client(case, connector.connect(near, theirs.id(), Protocol::Relay).await.unwrap())
                .await;
        };
        let far = async { server(case, acceptor.accept(far).await.unwrap()).await };
        tokio::join!(near, far);
    });
}

/// Sizes, at least one of which moves bytes.
fn cuts() -> impl Strategy<Value = Vec<usize>> {
    let size = prop_oneof![Just(0), 1..8_usize, 20..30_usize, 1..70_000_usize];
    proptest::collection::vec(size, 1..12).prop_map(|mut sizes| {
        sizes.push(500);
        sizes
    })
}

fn case() -> impl Strategy<Value = Case> {
    let length = || prop_oneof![0..100_usize, 16_000..17_000_usize, 0..40_000_usize];
    let first = prop_oneof![Just(First::Server), Just(First::Client), Just(First::Both)];
    (first, [length(), length()], [length(), length()], cuts(), cuts(), 64..100_000_usize).prop_map(
        |(first, sealed, clear, client_cuts, server_cuts, room)| Case {
            first,
            sealed,
            clear,
            client_cuts,
            server_cuts,
            room,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_byte_arrives_once_and_in_order(case in case()) {
        run(&case);
    }
}

#[test]
fn every_split_of_the_last_records_and_the_first_clear_bytes_works() {
    // The last record has 22 bytes besides its content, so each length ends somewhere in it.
    for n in 1..=64 {
        for first in [First::Server, First::Client, First::Both] {
            let sizes = vec![n, 0];
            run(&Case {
                first,
                sealed: [10, 10],
                clear: [40, 40],
                client_cuts: sizes.clone(),
                server_cuts: sizes,
                room: 4096,
            });
        }
    }
}
