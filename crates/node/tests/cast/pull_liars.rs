//! Parents that store the object and violate the protocol.

use crate::{
    ring_liars::{accept, pages, read, stay_silent},
    scene::{Scene, name},
};
use futures_util::future::BoxFuture;
use std::{fs, net::SocketAddr, sync::Arc};
use thalweg_cast::source::{Event, Outcome};
use thalweg_fountain::Geometry;
use thalweg_mesh::{MeshPeer, service::MemberService};
use thalweg_net::channel::Channel;
use thalweg_paths::estimates::Estimates;
use thalweg_wire::cast::{
    ChildMessage, Fault, Frame, MAX_CHILD_MESSAGE, MAX_OPENING, Opening, ParentMessage,
    ServiceMode, SymbolHead,
};
use tokio::{io::AsyncWriteExt as _, net::TcpStream};

const LENGTH: usize = 9 << 20;

/// n1 should serve n2; n0 could.
const RATES: &str = "from,to,rate\nn0,n1,90 Mbit/s\nn1,n2,80 Mbit/s\nn0,n2,10 Mbit/s\n";

/// Claims to have the object, and answers any request with the first symbol, again and again.
#[derive(Clone, Debug)]
struct Replayer(Arc<Vec<u8>>);

impl Replayer {
    async fn replay(&self, mut channel: Channel<TcpStream>) -> std::io::Result<()> {
        let opening = read::<Opening>(&mut channel, MAX_OPENING).await?;
        if !matches!(opening, Opening::Hello { want: ServiceMode::Pull, .. }) {
            return stay_silent(channel).await;
        }
        accept(&mut channel).await?;
        let geometry = Geometry::for_length(self.0.len() as u64).unwrap();
        let all = vec![(0, geometry.symbols())];
        channel.write_all(&Frame::encode_message(&ParentMessage::Have(all))).await?;
        channel.flush().await?;
        while !matches!(read::<ChildMessage>(&mut channel, MAX_CHILD_MESSAGE).await?, ChildMessage::Request(runs) if !runs.is_empty())
        {
        }
        let digests = pages(&self.0)[0].digests.as_flattened().to_vec();
        channel
            .write_all(&Frame::encode_message(&ParentMessage::Page { block: 0, digests }))
            .await?;
        let size = geometry.symbol_bytes();
        let head = SymbolHead { block: 0, esi: 0, length: size };
        let symbol = [&Frame::Symbol(head).encode()[..], &self.0[..size as usize]].concat();
        // Until the other end closes the channel.
        loop {
            channel.write_all(&symbol).await?;
            channel.flush().await?;
        }
    }
}

impl MemberService for Replayer {
    fn serve(
        &self,
        channel: Channel<TcpStream>,
        _: MeshPeer,
        _: SocketAddr,
    ) -> BoxFuture<'static, ()> {
        let own = self.clone();
        Box::pin(async move { _ = own.replay(channel).await })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parent_that_sends_one_symbol_for_ever_is_named_and_left() {
    for parents in [1, 2] {
        let mut scene = Scene::new(2).await;
        let content = scene.file("image", LENGTH);
        scene.nodes[0].serve_as(Arc::new(Replayer(Arc::new(content.clone())))).await;
        let mut request = scene.request("image");
        request.to = vec![name(1), name(2)];
        request.estimates = Estimates::parse(RATES).unwrap();
        (request.parents, request.patience) = (parents, std::time::Duration::from_secs(5));
        let stop = tokio_util::sync::CancellationToken::new();
        let end = stop.clone();
        let has_it = move |event: &Event| {
            if matches!(event, Event::Received { receiver, .. } if *receiver == name(2)) {
                end.cancel();
            }
        };
        let totals = scene.cast_telling(request, stop, has_it).await.unwrap();
        let all = scene.events.all();
        assert_eq!(totals.complete, 1, "{all:?}");
        assert_ne!(totals.outcome, Outcome::Complete);
        assert!(fs::read(scene.nodes[1].inbox("image")).unwrap() == content);
        let named = |event: &Event| {
            matches!(event, Event::ParentLeft { receiver, parent, fault: Fault::Corrupt, why }
                if (receiver, parent) == (&name(2), &name(1)) && why.contains("keeps sending"))
        };
        assert!(all.iter().any(named), "{parents}: {all:?}");
        let (_, bytes, beyond) = scene.events.received()[0].clone();
        assert!(beyond <= 4 << 20, "{beyond} of {bytes} of no use");
    }
}
