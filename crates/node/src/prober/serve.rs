//! The serving side: others' flows, as they come to the node's port.

use super::{Prober, Shared, counts, pace::Pace, receive};
use crate::{
    daemon::{BoxFuture, MeasureService},
    mesh::MeshPeer,
    relay::Event,
};
use std::{io, net::SocketAddr, sync::Arc};
use thalweg_measure::{Bound, bulk::Found};
use thalweg_net::channel::Channel;
use thalweg_wire::mesh::measure_flow::{Hello, Limits, Refusal, Verdict};
use tokio::net::TcpStream;

/// What came of a flow that was received.
enum Ended {
    /// Judged.
    Found(Hello, Verdict),
    /// Not wanted.
    Refused(Refusal),
    /// Accepted, and nothing came.
    Nothing,
}

impl MeasureService for Prober {
    fn serve(
        &self,
        channel: Channel<TcpStream>,
        peer: MeshPeer,
        from: SocketAddr,
    ) -> BoxFuture<'static, ()> {
        let shared = Arc::clone(&self.0);
        Box::pin(async move {
            let revoked = peer.revoked();
            let ended = tokio::select! {
                biased;
                () = revoked => Err(io::Error::other("the sender is revoked")),
                ended = shared.receive(channel, &peer) => ended,
            };
            shared.tell_received(&peer, from, ended);
        })
    }
}

impl Shared {
    async fn receive(&self, mut channel: Channel<TcpStream>, peer: &MeshPeer) -> io::Result<Ended> {
        let heard = self.channels.try_acquire();
        let _heard = heard.map_err(|_| io::Error::other("too many channels at a time"))?;
        let hello = receive::hello(&mut channel).await?;
        let refusal = match (self.lane.try_acquire(), self.limits()) {
            (Ok(_place), Some(own)) => {
                let limits = hello.limits.tightest(own);
                let found = self.judge(channel, peer, limits).await?;
                return Ok(found.map_or(Ended::Nothing, |found| Ended::Found(hello, found)));
            }
            (Err(_), _) => Refusal::Busy,
            (_, None) => Refusal::Budget,
        };
        receive::refuse(channel, refusal).await?;
        Ok(Ended::Refused(refusal))
    }

    async fn judge(
        &self,
        channel: Channel<TcpStream>,
        peer: &MeshPeer,
        limits: Limits,
    ) -> io::Result<Option<Verdict>> {
        let (tcp, early) = receive::accept(channel, limits).await?;
        let pace = Pace::new(self.max_rate);
        // Charged also when the future is dropped on the way.
        let mut flow =
            Charged { flow: receive::Flow::new(tcp, &early, limits, pace), shared: self, peer };
        let found = flow.flow.judge(limits.time()).await;
        let verdict = self.verdict(found);
        flow.flow.tell(verdict).await;
        Ok(found.map(|_| verdict))
    }

    /// What the sender is told; of nothing: a rate of 0. A rate that this node's own setting
    /// holds back is no steady rate of the path.
    fn verdict(&self, found: Option<Found>) -> Verdict {
        let Some(found) = found else {
            let (spread_bps, steady, at_least) = (None, false, true);
            return Verdict { bytes: 0, micros: 0, bps: 0.0, spread_bps, steady, at_least };
        };
        let is_own = self.is_own_limit(found.bps);
        Verdict {
            bytes: found.bytes,
            micros: found.took.as_micros() as u64,
            bps: found.bps,
            spread_bps: found.spread_bps,
            steady: found.is_steady() && !is_own,
            at_least: found.bound == Bound::AtLeast || is_own,
        }
    }

    fn tell_received(&self, peer: &MeshPeer, from: SocketAddr, ended: io::Result<Ended>) {
        let name = &peer.member().name;
        self.counts.ended(false, counted(&ended));
        let event = Event::new("measured_by").with("peer", name).with("client", from);
        self.log.put(match ended {
            Ok(Ended::Found(hello, found)) => {
                self.outbox.received(hello.order, name.clone(), &found);
                let event = event.with_number("order", hello.order);
                let event = event.with_number("bps", found.bps as u64);
                event.with_number("bytes", found.bytes)
            }
            Ok(Ended::Refused(why)) => event.with("refused", why),
            Ok(Ended::Nothing) => event.with("why", "nothing came"),
            Err(e) => event.with("why", e),
        });
    }
}

fn counted(ended: &io::Result<Ended>) -> counts::Ended {
    match ended {
        Ok(Ended::Found(_, found)) if found.at_least => counts::Ended::AtLeast,
        Ok(Ended::Found(..)) => counts::Ended::Measured,
        Ok(Ended::Refused(_)) => counts::Ended::Refused,
        Ok(Ended::Nothing) | Err(_) => counts::Ended::Failed,
    }
}

/// A flow whose bytes are charged when it is dropped.
struct Charged<'a> {
    flow: receive::Flow,
    shared: &'a Shared,
    peer: &'a MeshPeer,
}

impl Drop for Charged<'_> {
    fn drop(&mut self) {
        self.shared.purse.charge(self.peer.key(), self.flow.bytes);
    }
}
