//! Bonds over real connections: written bytes arrive once, in order, whatever links do.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod daemon;
mod hostile;
mod pipe;

use pipe::Pipe;
use std::{future::Future, sync::Arc, time::Duration};
use thalweg_bond::{LinkId, StripeMethod};
use thalweg_uplinks::bond::{BondStream, Engine, LinkEnd, LinkIo, Settings, StreamError};
use thalweg_wire::bond::{BondMessage, ChunkHead, Frame, Refusal, Target};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

/// Longer than any wait on the busiest machine.
const PATIENCE: Duration = Duration::from_secs(60);

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("nothing came for a minute")
}

/// Two ends of a bond in this process, joined by real connections.
struct Bond {
    near: Arc<Engine>,
    far: Arc<Engine>,
    links: Vec<(Pipe, JoinHandle<LinkEnd>, JoinHandle<LinkEnd>)>,
}

impl Bond {
    async fn new(settings: Settings, links: u32) -> Self {
        let near = Engine::new(settings, settings.first_window(), true);
        let far = Engine::new(settings, settings.first_window(), false);
        for engine in [&near, &far] {
            let engine = Arc::clone(engine);
            tokio::spawn(async move { engine.watch().await });
        }
        let mut bond = Self { near, far, links: Vec::new() };
        for id in 0..links {
            bond.join(id).await;
        }
        bond
    }

    async fn join(&mut self, id: u32) {
        let (pipe, near, far) = Pipe::new().await;
        let run = |engine: &Arc<Engine>, tcp: TcpStream| {
            let (engine, link) = (Arc::clone(engine), LinkIo::clear(tcp).unwrap());
            tokio::spawn(async move { engine.run_link(LinkId(id), link).await })
        };
        let running = (run(&self.near, near), run(&self.far, far));
        self.links.push((pipe, running.0, running.1));
    }

    /// Opens a stream; returns both of its ends.
    async fn stream(&self) -> (BondStream, BondStream) {
        let to = Target::Server("echo".into(), 7);
        let accept = async {
            let (stream, asked) = self.far.next().await.unwrap();
            assert_eq!(asked, to);
            self.far.accept(stream)
        };
        let both = async { tokio::join!(self.near.open(to.clone()), accept) };
        let Ok((near, far)) = tokio::time::timeout(PATIENCE, both).await else {
            panic!("no stream in a minute: {}{}", self.near.describe(), self.far.describe());
        };
        (near.unwrap(), far)
    }
}

/// Bytes without near repetitions.
fn text(length: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let next = |state: &mut u64| {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (*state >> 33) as u8
    };
    (0..length).map(|_| next(&mut state)).collect()
}

/// Sends a text from one end to the other, and checks that it arrives unchanged.
async fn sends(from: &mut BondStream, to: &mut BondStream, length: usize) {
    let text = text(length);
    let send = async {
        from.write_all(&text).await.unwrap();
        from.shutdown().await.unwrap();
    };
    let receive = async {
        let mut got = Vec::new();
        to.read_to_end(&mut got).await.unwrap();
        got
    };
    let ((), got) = soon(async { tokio::join!(send, receive) }).await;
    assert!(got == text, "{} of {length} bytes came, or others", got.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_uses_all_links_in_both_directions() {
    for method in [
        StripeMethod::RoundRobin,
        StripeMethod::WeightedRoundRobin,
        StripeMethod::EarliestCompletion,
    ] {
        let bond = Bond::new(Settings { method, ..Settings::default() }, 3).await;
        let (mut near, mut far) = bond.stream().await;
        sends(&mut near, &mut far, 8 << 20).await;
        sends(&mut far, &mut near, 8 << 20).await;
        let sent = bond.near.sent();
        // Thalweg's own method may find that fewer links suffice; and so may weights, which over loopback are whatever
        // the kernel timed.
        let in_turn = method == StripeMethod::RoundRobin;
        assert!(!in_turn || sent.values().all(|sent| *sent > 0), "{method:?}: {sent:?}");
        assert!(sent.values().sum::<u64>() >= 8 << 20);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_that_dies_loses_nothing() {
    let mut bond = Bond::new(Settings::default(), 2).await;
    let (mut near, mut far) = bond.stream().await;
    let text = text(24 << 20);
    let mut got = vec![0; text.len()];
    let sending = async {
        near.write_all(&text).await.unwrap();
        near.shutdown().await.unwrap();
    };
    let receiving = async {
        let (first, rest) = got.split_at_mut(4 << 20);
        far.read_exact(first).await.unwrap();
        // The data that it held is lost with it.
        let (pipe, ..) = bond.links.remove(0);
        pipe.cut();
        let (second, rest) = rest.split_at_mut(4 << 20);
        far.read_exact(second).await.unwrap();
        bond.join(7).await;
        far.read_exact(rest).await.unwrap();
        assert_eq!(far.read(&mut [0]).await.unwrap(), 0);
    };
    soon(async { tokio::join!(sending, receiving) }).await;
    assert!(got == text);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_link_is_bypassed_and_used_again_later() {
    let bond = Bond::new(Settings::default(), 2).await;
    let (mut near, mut far) = bond.stream().await;
    let text = text(24 << 20);
    let mut got = vec![0; text.len()];
    let sending = async {
        near.write_all(&text).await.unwrap();
        near.shutdown().await.unwrap();
    };
    let receiving = async {
        let (first, rest) = got.split_at_mut(2 << 20);
        far.read_exact(first).await.unwrap();
        bond.links[0].0.pause(true);
        far.read_exact(rest).await.unwrap();
    };
    if tokio::time::timeout(PATIENCE, async { tokio::join!(sending, receiving) }).await.is_err() {
        panic!("it stands still: {}{}", bond.near.describe(), bond.far.describe());
    }
    assert!(got == text);
    // Data that it still held arrives twice, and is discarded; then the link serves again, alone if need be.
    bond.links[0].0.pause(false);
    bond.links[1].0.pause(true);
    let (mut near, mut far) = bond.stream().await;
    sends(&mut near, &mut far, 4 << 20).await;
}

/// As when an interface disappears: the far end receives nothing over its connection.
#[tokio::test(flavor = "multi_thread")]
async fn a_link_that_broke_at_one_end_is_reported_over_another() {
    let bond = Bond::new(Settings::default(), 1).await;
    let (pipe, near, far) = Pipe::new().await;
    pipe.pause(true);
    let stop = CancellationToken::new();
    let near_runs = {
        let (engine, stop) = (Arc::clone(&bond.near), stop.clone());
        let link = LinkIo::clear(near).unwrap();
        tokio::spawn(async move { engine.run_link_until(LinkId(9), link, stop.cancelled()).await })
    };
    let far_runs = {
        let (engine, link) = (Arc::clone(&bond.far), LinkIo::clear(far).unwrap());
        tokio::spawn(async move { engine.run_link(LinkId(9), link).await })
    };
    soon(async {
        while bond.near.links().len() < 2 || bond.far.links().len() < 2 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    stop.cancel();
    let ended = soon(async { tokio::join!(near_runs, far_runs) }).await;
    assert!(matches!(ended, (Ok(LinkEnd::Bye), Ok(LinkEnd::Bye))), "{ended:?}");
    let (mut near, mut far) = bond.stream().await;
    sends(&mut near, &mut far, 1 << 20).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_streams_share_a_bond() {
    let bond = Bond::new(Settings::default(), 2).await;
    let mut all = tokio::task::JoinSet::new();
    for length in (0..40).map(|i| i * 10_007) {
        let (mut near, mut far) = bond.stream().await;
        all.spawn(async move {
            sends(&mut near, &mut far, length).await;
            sends(&mut far, &mut near, length / 2).await;
        });
    }
    soon(async {
        while let Some(done) = all.join_next().await {
            done.unwrap()
        }
    })
    .await;
    // A finished stream is forgotten at both ends.
    soon(async {
        while bond.near.streams() + bond.far.streams() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_leads_nowhere_is_refused() {
    let bond = Bond::new(Settings::default(), 1).await;
    let refuse = async {
        let (stream, _) = bond.far.next().await.unwrap();
        bond.far.refuse(stream, Refusal::Unreached("nobody is there".into()));
    };
    let open = bond.near.open(Target::Server("nowhere".into(), 1));
    let (opened, ()) = soon(async { tokio::join!(open, refuse) }).await;
    let why = opened.map(|_| ()).unwrap_err();
    assert_eq!(why, StreamError::Refused(Refusal::Unreached("nobody is there".into())));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_writer_learns_that_the_reader_has_gone() {
    let bond = Bond::new(Settings::default(), 2).await;
    let (mut near, far) = bond.stream().await;
    drop(far);
    let text = text(1 << 20);
    let written = soon(async {
        loop {
            if let Err(why) = near.write_all(&text).await {
                return why;
            }
        }
    });
    assert_eq!(written.await.kind(), std::io::ErrorKind::ConnectionReset);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_exceeds_its_window_breaks_the_bond() {
    let settings = Settings { window: 1000, ..Settings::default() };
    let far = Engine::new(settings, 1000, false);
    let (_pipe, mut near, tcp) = Pipe::new().await;
    let link = LinkIo::clear(tcp).unwrap();
    let running = {
        let far = Arc::clone(&far);
        tokio::spawn(async move { far.run_link(LinkId(0), link).await })
    };
    near.write_all(&Frame::encode_message(&BondMessage::Open {
        stream: 0,
        to: Target::Service("x".into()),
    }))
    .await
    .unwrap();
    let (stream, _) = soon(far.next()).await.unwrap();
    let mut stream = far.accept(stream);
    let mut frame =
        Frame::Chunk(ChunkHead { stream: 0, offset: 1, length: 1000 }).encode().to_vec();
    frame.extend([0; 1000]);
    near.write_all(&frame).await.unwrap();
    let ended = soon(running).await.unwrap();
    assert!(matches!(&ended, LinkEnd::Hostile(why) if why.contains("1000")), "{ended:?}");
    assert!(soon(stream.read(&mut [0; 10])).await.is_err());
    assert!(soon(far.next()).await.is_none());
}
