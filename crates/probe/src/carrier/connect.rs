//! Opens a session to a member when this node has packets for it.

use super::{partner::Partner, shared::CarrierShared};
use crate::trains::{CarrierSession, SessionError, Trains};
use std::{sync::Arc, time::Duration};
use thalweg_base::log::Event;
use thalweg_net::{Stream, channel::Protocol};

/// A session that no packet has used for this long is closed; the next packet opens another.
const UNUSED: Duration = Duration::from_secs(600);

/// Why a session ended whose member is no longer in a valid roster.
const GONE: &str = "the member was revoked, or the roster expired";

/// Opens a session and keeps it up, until it is unused for too long or fails.
pub async fn connect(shared: Arc<CarrierShared>, partner: Arc<Partner>, trains: Trains) {
    let opened = open(&shared, &partner, &trains).await;
    let event = |name| Event::new(name).with("member", &partner.name);
    let session = match opened {
        Ok(session) => session,
        Err(why) => {
            shared.log.put(event("carrier_no_session").with("why", &why));
            return partner.closed(Some(why));
        }
    };
    partner.opened();
    shared.log.put(event("carrier_session").with("address", partner.address));
    let ended = tokio::select! {
        ended = session.keep(|| partner.is_unused_for(UNUSED)) => ended.err().map(|why| why.to_string()),
        () = shared.membership.wait_for_removal(partner.key) => Some(GONE.to_owned()),
    };
    let told = event("carrier_session_ended");
    shared.log.put(match &ended {
        Some(why) => told.with("why", why),
        None => told,
    });
    partner.closed(ended);
}

async fn open(
    shared: &CarrierShared,
    partner: &Arc<Partner>,
    trains: &Trains,
) -> Result<CarrierSession<Stream>, String> {
    let channel = shared.dialer.channel(&partner.name, &[], Protocol::Probe).await;
    let channel = channel.map_err(|why| why.to_string())?;
    let at = channel.get_ref().tcp().and_then(|tcp| tcp.peer_addr().ok());
    let at = at.ok_or("the member's address is not known")?.ip().to_canonical();
    let endpoint = trains
        .endpoint_towards(at)
        .ok_or("this node does not listen on any address of the member's address family")?;
    let opened = CarrierSession::open(channel, at, &endpoint, Arc::clone(partner) as _).await;
    opened.map_err(|why: SessionError| why.to_string())
}
