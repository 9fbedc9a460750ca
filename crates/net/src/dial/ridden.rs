//! A first leg whose packets ride in probe trains.

use super::{By, Cause, DialError, Dialer, Entered, Step, turns::Patience};
use crate::{Hop, Host, Medium, Rides, channel::Protocol, interface_for, transport::Transport};
use std::num::NonZeroU32;
use thalweg_units::NodeId;

impl Dialer {
    /// The node at its overlay address: where the hop wants it so, or where that is chosen and succeeds.
    ///
    /// # Errors
    /// [`DialError`], only where the hop wants no other way.
    pub(super) async fn enter_riding(
        &self,
        patience: Patience,
        hop: &Hop,
        interface: Option<NonZeroU32>,
        protocol: Protocol,
    ) -> Result<Option<Entered>, DialError> {
        let is_wanted = hop.medium == Medium::Ride;
        let rides = self.rides.as_deref().filter(|_| interface.is_none());
        let Some((rides, key)) = rides.zip(hop.key()) else {
            let step = || Step::reach(&hop.relay, protocol == Protocol::Relay);
            return match is_wanted {
                true => Err(step().failed(Cause::RideUnsupported)),
                false => Ok(None),
            };
        };
        if is_wanted {
            return self.ride(patience, hop, (rides, key), protocol).await.map(Some);
        }
        if !(is_bulk(protocol) && rides.chooses(key)) {
            return Ok(None);
        }
        // One that does not answer leaves most of the time to the plain way.
        let first = Patience::share(patience.until, 3);
        Ok(self.ride(first, hop, (rides, key), protocol).await.ok())
    }

    async fn ride(
        &self,
        patience: Patience,
        hop: &Hop,
        (rides, key): (&dyn Rides, NodeId),
        protocol: Protocol,
    ) -> Result<Entered, DialError> {
        let step = || Step::reach(&hop.relay, protocol == Protocol::Relay);
        let at = rides.at(key).map_err(|why| step().failed(Cause::NoRide(why)))?;
        let by = By { beneath: beneath(hop), ..By::of(None, self.books.clone()) };
        let entering = async {
            let leg = self.reach(&at.into(), &by).await?;
            self.enter(Transport::Tcp(leg), hop, protocol).await
        };
        let entered = patience.wait(step(), entering).await;
        entered.map_err(|DialError { step, cause, .. }| {
            step.failed(Cause::Riding { at, why: Box::new(cause) })
        })
    }
}

/// Whether such channels move data: words that arrange something are few, and measured flows are about plain TCP.
fn is_bulk(protocol: Protocol) -> bool {
    matches!(protocol, Protocol::Relay | Protocol::Object | Protocol::Cast)
}

/// The interface by which the carrier's datagrams to it leave, as far as its address tells.
fn beneath(hop: &Hop) -> Option<NonZeroU32> {
    hop.addresses().find_map(|at| match at.host {
        Host::Ip(ip) => interface_for(ip).ok(),
        Host::Name(_) => None,
    })
}
