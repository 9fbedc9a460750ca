//! Handles incoming channels of the cast protocol.

use super::{
    ServiceState,
    admit::{Admission, CopyCheck},
};
use crate::{
    leg::{self, parent},
    receive::{
        control::{ControlEnd, forget, talk},
        reception::Reception,
    },
};
use std::{io, sync::Arc};
use thalweg_mesh::MeshPeer;
use thalweg_net::channel::Channel;
use thalweg_wire::cast::{CastId, Opening, Refusal, Report, ServiceMode};
use tokio::net::TcpStream;

impl ServiceState {
    pub(super) async fn serve(
        self: Arc<Self>,
        mut channel: Channel<TcpStream>,
        peer: &MeshPeer,
    ) -> io::Result<()> {
        match leg::read_opening(&mut channel).await? {
            Opening::Offer { offer, pass } => match self.accept_offer(offer, pass, peer).await {
                Ok(reception) => self.control(channel, reception).await,
                Err(why) => leg::refuse(channel, why).await,
            },
            Opening::DryRun { offer, pass, relays } => {
                match self.would_take(offer, pass, relays, peer).await {
                    Ok(admission) => say_would_take(channel, &admission).await,
                    Err(why) => leg::refuse(channel, why).await,
                }
            }
            Opening::Relay { offer, pass } => match self.admit_relay(offer, pass, peer) {
                Ok(slot) => {
                    let leg = leg::accept(channel, false).await?;
                    self.relays.talk(slot, leg).await
                }
                Err(why) => leg::refuse(channel, why).await,
            },
            Opening::Hello { cast, pass, want } => {
                self.give(channel, cast, &pass, want, peer).await
            }
            Opening::Serve { cast, how } => self.take(channel, cast, how, peer).await,
        }
    }

    /// Serves the cast to another node.
    async fn give(
        &self,
        channel: Channel<TcpStream>,
        cast: CastId,
        pass: &[u8],
        want: ServiceMode,
        peer: &MeshPeer,
    ) -> io::Result<()> {
        let name = &peer.member().name;
        let Some(_place) = self.served.begin(name) else {
            return leg::refuse(channel, Refusal::Busy).await;
        };
        if let Some(relay) = self.relays.get(cast).filter(|_| want == ServiceMode::Stream) {
            return match self.check_pass(pass, cast, relay.offer(), name) {
                Ok(()) => {
                    let leg = leg::accept(channel, relay.offer().value().open).await?;
                    relay.serve(leg).await
                }
                Err(why) => leg::refuse(channel, why).await,
            };
        }
        let (reception, is_open) = match self.admit_child(cast, pass, peer.member()) {
            Ok(greeted) => greeted,
            Err(why) => return leg::refuse(channel, why).await,
        };
        let Some(store) = reception.store() else {
            return leg::refuse(channel, Refusal::Unknown).await;
        };
        let leg = leg::accept(channel, is_open).await?;
        let _child = reception.add_child(name.clone());
        let serving = async {
            match want {
                ServiceMode::Pull => parent::serve(Arc::clone(&store), leg, None).await,
                ServiceMode::Stream => reception.ring(&store)?.serve(leg).await,
            }
        };
        tokio::select! {
            served = serving => served.map_err(io::Error::other),
            () = reception.wait_replaced(&store) => Ok(()),
        }
    }

    /// Accepts a leg on which the source serves, after it was called.
    async fn take(
        &self,
        channel: Channel<TcpStream>,
        cast: CastId,
        how: ServiceMode,
        peer: &MeshPeer,
    ) -> io::Result<()> {
        // A leg that nobody called for is closed.
        if let Some(relay) = self.relays.get(cast).filter(|r| r.offer().signer() == peer.key()) {
            let leg = leg::accept(channel, relay.offer().value().open).await?;
            _ = relay.incoming.take(how, leg);
            return Ok(());
        }
        let its = self.get(cast).filter(|r| r.offer().signer() == peer.key());
        let Some(reception) = its else {
            return leg::refuse(channel, Refusal::Unknown).await;
        };
        let leg = leg::accept(channel, reception.offer().value().open).await?;
        _ = reception.incoming.take(how, leg);
        Ok(())
    }

    async fn control(
        self: &Arc<Self>,
        channel: Channel<TcpStream>,
        reception: Arc<Reception>,
    ) -> io::Result<()> {
        let id = reception.home.id;
        let mut leg = leg::accept(channel, false).await?;
        match talk(&reception, &mut leg, || self.work(id)).await? {
            // Received data is kept until the offer expires.
            ControlEnd::Gone => Ok(()),
            ControlEnd::Forget => forget(&mut leg.writer, self.forget(id)).await,
        }
    }
}

/// Answers a dry run. A source of an earlier version may have closed the channel after the first report.
async fn say_would_take(channel: Channel<TcpStream>, admission: &Admission) -> io::Result<()> {
    let mut leg = leg::accept(channel, false).await?;
    if admission.copy == CopyCheck::Skipped {
        leg.writer.write_message(&Report::Uncompared).await?;
    }
    if let Some(policy) = &admission.policy {
        _ = leg.writer.write_message(&Report::InboxRules(policy.rules())).await;
    }
    leg.writer.close().await;
    Ok(())
}
