//! A first leg that a carrier brings.

use super::{Cause, DialError, Dialer, Entered, Step, turns::Patience};
use crate::{Hop, Medium, Speech, channel::Protocol, transport::Transport};
use std::num::NonZeroU32;

impl Dialer {
    /// The interface that the plain way to a node leaves by, where the carrier does not leave that to the kernel.
    pub(super) fn leaves_by(&self, hop: &Hop, protocol: Protocol) -> Option<NonZeroU32> {
        let is_members = matches!(hop.speech, Speech::Mesh { .. }) && protocol != Protocol::Bond;
        self.carrier.as_ref().filter(|_| is_members)?.leaves_by(hop)
    }

    /// The node, if a carrier leads there: at once, or, where the hop wants it, once it does.
    ///
    /// # Errors
    /// [`DialError`], only where the hop wants no other way.
    pub(super) async fn enter_carried(
        &self,
        patience: Patience,
        hop: &Hop,
        interface: Option<NonZeroU32>,
        protocol: Protocol,
    ) -> Result<Option<Entered>, DialError> {
        let waits = hop.medium == Medium::Carrier;
        let may = interface.is_none() && matches!(hop.speech, Speech::Mesh { .. });
        let carrier = self.carrier.as_ref().filter(|_| may && protocol != Protocol::Bond);
        let step = || Step::reach(&hop.relay, protocol == Protocol::Relay);
        let Some(opening) = carrier.and_then(|carrier| carrier.open(hop, waits)) else {
            return match waits {
                true => Err(step().failed(Cause::CarrierUnsupported)),
                false => Ok(None),
            };
        };
        let entering = async {
            let carried = opening.await.map_err(Cause::Carrier)?;
            self.enter(Transport::Carried(carried), hop, protocol).await
        };
        if waits {
            return patience.wait(step(), entering).await.map(Some);
        }
        // One that is silent just now leaves most of the time to the plain way.
        let first = Patience::share(patience.until, 3);
        Ok(first.wait(step(), entering).await.ok())
    }
}
