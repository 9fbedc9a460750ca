//! Relays that corrupt, forge and replay what they forward, and children that read nothing.

use crate::scene::{Scene, name};
use futures_util::future::BoxFuture;
use std::{fs, net::SocketAddr, sync::Arc};
use thalweg_cast::source::{Event, Forwarding, Outcome};
use thalweg_fountain::{
    Geometry, SymbolId,
    digest::{ObjectHasher, RepairPage, SourcePage},
};
use thalweg_mesh::{MeshPeer, service::MemberService};
use thalweg_net::channel::Channel;
use thalweg_paths::estimates::Estimates;
use thalweg_wire::{
    Signed,
    cast::{
        Answer, CastId, ChildMessage, Frame, MAX_CHILD_MESSAGE, MAX_OPENING, Opening,
        ParentMessage, RepairSheet, Report, ServiceMode, SymbolHead, decode, encode, length,
    },
    mesh::Name,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

const LENGTH: usize = 9 << 20;

/// The liar is n1; n2 gets the object from it, n3 from the source.
const RATES: &str = "from,to,rate\nn0,n1,90 Mbit/s\nn1,n2,80 Mbit/s\nn0,n2,10 Mbit/s\n\
    n0,n3,90 Mbit/s\n";

/// The protocol violation of a relay.
#[derive(Clone, Copy, Debug)]
enum Lie {
    /// A symbol with an altered byte.
    Corrupt,
    /// Digests that do not add up.
    Page,
    /// Digests of repair symbols, signed by the relay itself.
    Sheet,
    /// A symbol without any digests.
    Bare,
    /// The same symbol, again and again.
    Replay,
    /// A symbol twice, and then the end; this is no violation.
    Twice,
}

/// A relay that forwards only lies; to a source it is silent.
#[derive(Clone, Debug)]
pub struct Liar {
    lie: Lie,
    content: Arc<Vec<u8>>,
    /// Made before they are needed: a child that has to wait for a lie would leave the liar as too slow, and never get
    /// it.
    pages: Arc<Vec<SourcePage>>,
}

impl MemberService for Liar {
    fn serve(
        &self,
        channel: Channel<TcpStream>,
        _: MeshPeer,
        _: SocketAddr,
    ) -> BoxFuture<'static, ()> {
        let liar = self.clone();
        // Its victims end the channel.
        Box::pin(async move { _ = liar.lie(channel).await })
    }
}

/// Reads a message of at most `most` bytes.
pub async fn read<T: serde::de::DeserializeOwned>(
    channel: &mut (impl AsyncRead + Unpin),
    most: usize,
) -> std::io::Result<T> {
    let mut head = [0; 4];
    channel.read_exact(&mut head).await?;
    let mut body = vec![0; length(head, most).unwrap()];
    channel.read_exact(&mut body).await?;
    Ok(decode(&body).unwrap())
}

pub async fn accept(channel: &mut Channel<TcpStream>) -> std::io::Result<()> {
    channel.write_all(&encode(&Answer::Accepted { open: false })).await?;
    channel.flush().await
}

async fn drain(channel: &mut Channel<TcpStream>) {
    let mut buffer = vec![0; 1 << 16];
    while channel.read(&mut buffer).await.is_ok_and(|n| n > 0) {}
}

/// Accepts, and then sends nothing more to the source.
pub async fn stay_silent(mut channel: Channel<TcpStream>) -> std::io::Result<()> {
    accept(&mut channel).await?;
    let needs = Report::Needs { manifest: false, layout: false };
    channel.write_all(&encode(&needs)).await?;
    channel.flush().await?;
    drain(&mut channel).await;
    Ok(())
}

pub fn pages(content: &[u8]) -> Vec<SourcePage> {
    let geometry = Geometry::for_length(content.len() as u64).unwrap();
    let (mut hasher, mut pages) = (ObjectHasher::new(geometry), Vec::new());
    hasher.update(content, &mut |page| pages.push(page));
    hasher.finish(&mut |page| pages.push(page));
    pages
}

impl Liar {
    fn new(lie: Lie, content: &[u8]) -> Self {
        let pages = Arc::new(pages(content));
        Self { lie, content: Arc::new(content.to_vec()), pages }
    }

    /// Sends its children nothing of use, and the source only that it is there.
    pub fn silent() -> Self {
        Self { lie: Lie::Bare, content: Arc::default(), pages: Arc::default() }
    }

    async fn lie(&self, mut channel: Channel<TcpStream>) -> std::io::Result<()> {
        match read::<Opening>(&mut channel, MAX_OPENING).await? {
            Opening::Hello { cast, want: ServiceMode::Stream, .. } if !self.content.is_empty() => {
                accept(&mut channel).await?;
                while read::<ChildMessage>(&mut channel, MAX_CHILD_MESSAGE).await?
                    != ChildMessage::Request(Vec::new())
                {}
                channel.write_all(&self.encoded(cast)).await?;
                channel.flush().await?;
                if matches!(self.lie, Lie::Twice) {
                    // It reads on, so that a reset does not lose what it sent.
                    channel.shutdown().await?;
                }
            }
            _ => return stay_silent(channel).await,
        }
        drain(&mut channel).await;
        Ok(())
    }

    fn encoded(&self, cast: CastId) -> Vec<u8> {
        let geometry = Geometry::for_length(self.content.len() as u64).unwrap();
        let mut pages = self.pages[..1].to_vec();
        let size = geometry.symbol_bytes() as usize;
        let symbol = |esi: u32, bytes: &[u8]| {
            let head = SymbolHead { block: 0, esi, length: bytes.len() as u32 };
            [&Frame::Symbol(head).encode()[..], bytes].concat()
        };
        let first = symbol(0, &self.content[..size]);
        match self.lie {
            Lie::Bare => return first,
            Lie::Page => pages[0].digests[3][0] ^= 1,
            _ => {}
        }
        let digests = pages[0].digests.as_flattened().to_vec();
        let mut encoded = Frame::encode_message(&ParentMessage::Page { block: 0, digests });
        match self.lie {
            Lie::Corrupt => {
                let mut wrong = self.content[size..2 * size].to_vec();
                wrong[7] ^= 0x40;
                encoded.extend(first);
                encoded.extend(symbol(1, &wrong));
            }
            Lie::Replay => encoded.extend(first.repeat(500)),
            Lie::Twice => encoded.extend(first.repeat(2)),
            Lie::Sheet => {
                let esi = geometry.source_symbols_of(0);
                let symbols = vec![vec![7; size]; geometry.repair_symbols() as usize];
                let forged = symbols.iter().map(Vec::as_slice);
                let page = RepairPage::compute(&geometry, cast.as_bytes(), 0, forged);
                let sheet = RepairSheet { cast, block: 0, digests: page.digests };
                let page = Signed::sign(sheet, &crate::members::key(1)).encode();
                encoded
                    .extend(Frame::encode_message(&ParentMessage::RepairPage { block: 0, page }));
                assert!(geometry.has(SymbolId { block: 0, esi }));
                encoded.extend(symbol(esi, &symbols[0]));
            }
            Lie::Page | Lie::Bare => encoded.extend(first),
        }
        encoded
    }
}

fn corrupt(all: &[Event]) -> Vec<(Name, Name, String)> {
    let is_lie = |event: &Event| match event {
        Event::ParentLeft { receiver, parent, fault: thalweg_wire::cast::Fault::Corrupt, why } => {
            Some((receiver.clone(), parent.clone(), why.clone()))
        }
        _ => None,
    };
    all.iter().filter_map(is_lie).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lying_relay_is_named_and_left_and_others_are_unharmed() {
    let lies = [
        (Lie::Corrupt, "wrong content"),
        (Lie::Page, "do not match chunk"),
        (Lie::Sheet, "not signed by the source"),
        (Lie::Bare, "before the digests"),
        (Lie::Replay, "keeps sending"),
    ];
    for (lie, why) in lies {
        let named = named(lie).await;
        assert_eq!(named.len(), 1, "{lie:?}: {named:?}");
        let (receiver, parent, encoded) = &named[0];
        assert_eq!((receiver, parent), (&name(2), &name(1)), "{lie:?}");
        assert!(encoded.contains(why), "{lie:?}: {encoded}");
    }
}

/// The nodes that were named in a cast with this liar; the others have the object.
///
/// On a busy machine n2 may get the whole object from the source before the liar sends anything, or leave it as too
/// slow: then the cast is repeated.
async fn named(lie: Lie) -> Vec<(Name, Name, String)> {
    for _ in 0..4 {
        let mut scene = Scene::new(3).await;
        let content = scene.file("image", LENGTH);
        scene.nodes[0].serve_as(Arc::new(Liar::new(lie, &content))).await;
        let mut request = scene.request("image");
        request.to = vec![name(2), name(3)];
        request.estimates = Estimates::parse(RATES).unwrap();
        request.forwarding =
            Forwarding { by_rings: true, via: vec![name(1)], ..Forwarding::default() };
        let totals = scene.cast(request).await.unwrap();
        let all = scene.events.all();
        assert_eq!(totals.outcome, Outcome::Complete, "{lie:?}: {all:?}");
        for node in &scene.nodes[1..] {
            assert!(fs::read(node.inbox("image")).unwrap() == content, "{lie:?}");
        }
        let named = corrupt(&all);
        if !named.is_empty() {
            return named;
        }
        println!("{lie:?} was not heard: {all:?}");
    }
    Vec::new()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_symbol_received_twice_is_counted_and_does_no_harm() {
    let mut scene = Scene::new(3).await;
    let content = scene.file("image", LENGTH);
    scene.nodes[0].serve_as(Arc::new(Liar::new(Lie::Twice, &content))).await;
    let mut request = scene.request("image");
    request.to = vec![name(2), name(3)];
    request.estimates = Estimates::parse(RATES).unwrap();
    request.forwarding = Forwarding { by_rings: true, via: vec![name(1)], ..Forwarding::default() };
    let totals = scene.cast(request).await.unwrap();
    let all = scene.events.all();
    assert_eq!(totals.outcome, Outcome::Complete, "{all:?}");
    assert!(corrupt(&all).is_empty(), "{all:?}");
    for node in &scene.nodes[1..] {
        assert!(fs::read(node.inbox("image")).unwrap() == content);
    }
    let received = scene.events.received();
    let (_, bytes, beyond) = received.iter().find(|one| one.0 == name(2)).unwrap();
    // At most the first of the two symbols was new; not even that if the source was quicker.
    assert!(*beyond >= 16 << 10, "{beyond} of no use: {all:?}");
    let report = scene.nodes[1].report();
    let parents = report["parents"].as_array().unwrap();
    let from_n1 = parents.iter().find(|parent| parent["name"] == "n1").unwrap();
    assert!(from_n1["bytes"].as_u64().unwrap() <= 16 << 10, "{report}");
    assert_eq!(bytes - beyond, LENGTH as u64);
}

/// A receiver that asks for a stream and reads none of it.
#[derive(Clone, Debug)]
struct Deaf;

impl MemberService for Deaf {
    fn serve(
        &self,
        mut channel: Channel<TcpStream>,
        _: MeshPeer,
        _: SocketAddr,
    ) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let Ok(opening) = read::<Opening>(&mut channel, MAX_OPENING).await else { return };
            if accept(&mut channel).await.is_err() {
                return;
            }
            let encoded = match opening {
                Opening::Serve { .. } => encode(&ChildMessage::Request(Vec::new())),
                _ => {
                    let needs = Report::Needs { manifest: false, layout: false };
                    [encode(&needs), encode(&Report::RequestLeg(ServiceMode::Stream))].concat()
                }
            };
            if channel.write_all(&encoded).await.is_ok() && channel.flush().await.is_ok() {
                // It stays, and reads nothing.
                std::future::pending::<()>().await;
            }
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_that_reads_nothing_holds_nobody_up() {
    let mut scene = Scene::new(3).await;
    let content = scene.file("image", 40 << 20);
    scene.nodes[0].serve_as(Arc::new(Deaf)).await;
    let mut request = scene.request("image");
    request.estimates = Estimates::parse(
        "from,to,rate\nn0,n1,9 Mbit/s\n\
        n0,n2,90 Mbit/s\nn0,n3,90 Mbit/s\n",
    )
    .unwrap();
    request.forwarding = Forwarding { by_rings: true, ..Forwarding::default() };
    let stop = tokio_util::sync::CancellationToken::new();
    let received = Arc::new(std::sync::Mutex::new(0));
    let casting = {
        let (end, received) = (stop.clone(), received.clone());
        // Once both others have the object, the deaf one is forgotten.
        let told = move |event: &Event| {
            if matches!(event, Event::Received { .. }) {
                let mut received = received.lock().unwrap();
                *received += 1;
                if *received == 2 {
                    end.cancel();
                }
            }
        };
        scene.cast_telling(request, stop, told)
    };
    let totals = casting.await.unwrap();
    let all = scene.events.all();
    assert_eq!((totals.complete, *received.lock().unwrap()), (2, 2), "{all:?}");
    // They got it while the deaf one was waited for, and not because it was forgotten.
    let gone = |event: &Event| matches!(event, Event::Unreached { receiver, .. } if receiver.as_str() == "n1");
    let last = all.iter().rposition(|event| matches!(event, Event::Received { .. })).unwrap_or(0);
    assert!(!all[..=last].iter().any(gone), "{all:?}");
    for node in &scene.nodes[1..] {
        assert!(fs::read(node.inbox("image")).unwrap() == content);
    }
}
