//! Programs' connections and this host's interfaces: where one goes, and what it does there.

use super::{chooser::Choice, dial::Raced, shared::Shared};
use crate::{
    interfaces::{Lanes, Passage},
    relay::pump::Moved,
};
use std::{future::pending, net::SocketAddr, sync::Arc, time::Duration};
use thalweg_net::Monitor;
use thalweg_wire::Destination;
use tokio::time::sleep;

/// How often the counts of a connection that HTTP is spoken on are looked at.
const LOOK: Duration = Duration::from_millis(250);

/// No interface may carry it.
#[derive(Clone, Copy, Debug)]
pub struct NoInterface;

impl Shared {
    /// The same choice, by the interfaces that a connection of the program at `client` is assigned;
    /// and whom to tell of it.
    ///
    /// # Errors
    /// The settings leave none.
    pub(super) async fn assigned(
        &self,
        client: SocketAddr,
        to: &Destination,
        choice: Choice,
    ) -> Result<(Choice, Option<Passage>), NoInterface> {
        let Some(uplinks) = &self.uplinks else { return Ok((choice, None)) };
        match uplinks.assign(client, to).await {
            Lanes::Free => Ok((choice, None)),
            Lanes::By { passage, interfaces, relays, or_free } => {
                let choice = choice.over(&interfaces, or_free).relayed_by(relays);
                Ok((choice, Some(passage)))
            }
            Lanes::Nowhere => Err(NoInterface),
        }
    }
}

/// The passage goes with the connection, if that is bound to an interface.
pub fn accompany(raced: &mut Raced, passage: Option<Passage>) {
    let (Ok(dialled), Some(passage)) = (&mut raced.won, passage) else { return };
    let route = dialled.stream.route();
    let interface = route.interface();
    if interface.is_none() && !route.is_direct() {
        return;
    }
    raced.routeless.iter().for_each(|index| passage.leads_not_by(*index));
    passage.stands(interface, dialled.stream.round_trip());
    dialled.passage = interface.map(|_| Arc::new(passage));
}

/// Tells of what a connection moves, and of the kernel's counts; never ends.
pub async fn watch(passage: Option<&Passage>, moved: &Moved, monitor: Monitor) {
    let Some(passage) = passage else { return pending().await };
    loop {
        sleep(LOOK).await;
        passage.counts(moved);
        // After the stream became another's there is nothing to be seen.
        if let Ok(info) = monitor.tcp_info() {
            passage.saw(&info);
        }
    }
}
