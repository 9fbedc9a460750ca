//! A first leg that a carrier brings.

use super::{By, Cause, DialError, Dialer, Entered, Step, turns::Patience};
use crate::{Hop, Leaving, Medium, Speech, channel::Protocol, transport::Transport};
use std::num::NonZeroU32;

impl Dialer {
    /// Where the plain way to a node leaves, and who keeps account of it: as the route says, or the carrier, or the
    /// kernel.
    ///
    /// # Errors
    /// The carrier's: by no interface.
    pub(super) fn leaving(
        &self,
        hop: &Hop,
        interface: Option<NonZeroU32>,
        protocol: Protocol,
    ) -> Result<By, Cause> {
        let is_members = matches!(hop.speech, Speech::Mesh { .. }) && protocol != Protocol::Bond;
        let carrier = self.carrier.as_ref().filter(|_| is_members && interface.is_none());
        let leaving = carrier.map_or(Ok(None), |carrier| carrier.leaves_by(hop));
        Ok(match leaving.map_err(Cause::NoInterface)? {
            Some(Leaving { interface, books }) => By::of(Some(interface), books),
            None => By::of(interface, self.books.clone()),
        })
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
        let waits = hop.medium == Medium::Bond;
        let may = interface.is_none() && hop.medium != Medium::Ride && hop.key().is_some();
        let carrier = self.carrier.as_ref().filter(|_| may && protocol != Protocol::Bond);
        let carrier = carrier.filter(|_| self.is_carried);
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
