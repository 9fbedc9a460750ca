//! The serving side: others' flows, as they come to the node's port.

use super::{Prober, Shared, counts, pace::Pace, receive};
use crate::overlay::OverlayCounts;
use futures_util::future::BoxFuture;
use std::{io, net::SocketAddr, sync::Arc};
use thalweg_base::log::Event;
use thalweg_measure::{Bound, bulk::Found};
use thalweg_mesh::{MeshPeer, service::MemberService};
use thalweg_net::{Ed25519, channel::Channel};
use thalweg_wire::mesh::{
    measure::MOST_BPS,
    measure_flow::{Hello, Limits, MOST_MICROS, Refusal, Verdict},
    measure_ticket::{Ticket, Void},
};
use tokio::{net::TcpStream, sync::SemaphorePermit};

/// What came of a flow that was received.
enum Ended {
    /// This order's, judged.
    Found(u64, Verdict),
    /// Not wanted.
    Refused(Refusal),
    /// Accepted, and nothing came.
    Nothing,
}

impl MemberService for Prober {
    fn serve(
        &self,
        channel: Channel<TcpStream>,
        peer: MeshPeer,
        from: SocketAddr,
    ) -> BoxFuture<'static, ()> {
        let shared = Arc::clone(&self.0);
        Box::pin(async move {
            let ended = peer.unless_revoked(shared.receive(channel, &peer)).await;
            shared.tell_received(&peer, from, ended.unwrap_or_else(|e| Err(e.into())));
        })
    }

    /// The overlay's; null where there is none.
    fn report(&self) -> serde_json::Value {
        self.0.overlay.get().map(OverlayCounts::report).unwrap_or_default()
    }
}

impl Shared {
    async fn receive(&self, mut channel: Channel<TcpStream>, peer: &MeshPeer) -> io::Result<Ended> {
        let heard = self.hearing.enter(peer.key());
        let _heard = heard.ok_or_else(|| io::Error::other("too many channels at a time"))?;
        let hello = receive::hello(&mut channel).await?;
        match self.admit(&hello, peer) {
            Ok((ticket, limits, _place)) => {
                let found = self.judge(channel, peer, limits).await?;
                Ok(found.map_or(Ended::Nothing, |found| Ended::Found(ticket.order, found)))
            }
            Err(refusal) => {
                receive::refuse(channel, refusal).await?;
                Ok(Ended::Refused(refusal))
            }
        }
    }

    /// The order, what it may cost, and the lane's place. Nothing is touched for whom the oracle
    /// has not sent; who finds this node busy may come again with the same order.
    fn admit(
        &self,
        hello: &Hello,
        peer: &MeshPeer,
    ) -> Result<(Ticket, Limits, SemaphorePermit<'_>), Refusal> {
        let mesh = (&self.membership.mesh(), &Ed25519);
        let (pair, now) = ((&peer.key(), &self.key), self.membership.now());
        let ticket = Ticket::admit(&hello.ticket, mesh, pair, now).map_err(Refusal::Void)?;
        if self.used.has(ticket.order) {
            return Err(Refusal::Void(Void::Used));
        }
        let place = self.lane.try_acquire().map_err(|_| Refusal::Busy)?;
        let own = self.limits().ok_or(Refusal::Budget)?;
        let own = Limits { bytes: own.bytes.min(ticket.bytes), ..own };
        match self.used.spend(ticket.order) {
            true => Ok((ticket, hello.limits.tightest(own), place)),
            false => Err(Refusal::Void(Void::Used)),
        }
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
            micros: (found.took.as_micros() as u64).min(MOST_MICROS),
            bps: found.bps.min(MOST_BPS),
            spread_bps: found.spread_bps.map(|spread| spread.min(MOST_BPS)),
            steady: found.is_steady() && !is_own,
            at_least: found.bound == Bound::AtLeast || is_own,
        }
    }

    fn tell_received(&self, peer: &MeshPeer, from: SocketAddr, ended: io::Result<Ended>) {
        let name = &peer.member().name;
        self.counts.ended(false, counted(&ended));
        let event = Event::new("measured_by").with("peer", name).with("client", from);
        if let Ok(Ended::Found(order, found)) = ended {
            self.outbox.received(order, name.clone(), &found);
            let event = event.with_number("order", order).with_number("bps", found.bps as u64);
            return self.log.put(event.with_number("bytes", found.bytes));
        }
        // Whoever is a member can cause these as often as it likes.
        let Some(unsaid) = self.quiet.passes(peer.key()) else { return };
        let event = if unsaid > 0 { event.with_number("unsaid", unsaid) } else { event };
        self.log.put(match ended {
            Ok(Ended::Refused(why)) => event.with("refused", why),
            Ok(_) => event.with("why", "nothing came"),
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
