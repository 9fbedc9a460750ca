//! Fetches data for another member: redeems its tickets at a third node and puts the data into the spool.

use super::{lending::Lending, spool::Filling, ticket::TicketTarget};
use crate::remote::{Remote, RemoteError};
use std::time::Duration;
use thalweg_mesh::MeshPeer;
use thalweg_wire::{
    mesh::Name,
    object::{Failure, MAX_PARTS, Reply, Request, SpoolId, Ticket},
};
use tokio::time::{Instant, timeout};

/// The longest time for a part: 1 MiB in this time is 3.5 kB/s. Otherwise a node that only reports progress, or sends a
/// byte now and then, would hold the room of the bytes received before.
const PART_TIMEOUT: Duration = Duration::from_secs(300);

/// A member's request to fetch data; [`Request::Fetch`].
#[derive(Clone, Debug)]
pub struct FetchOrder {
    /// The id of the spool entry to create.
    pub id: SpoolId,
    /// The node that has the data.
    pub from: Name,
    /// Tickets of that node.
    pub tickets: Vec<Ticket>,
    /// The maximum number of bytes to fetch.
    pub bytes: u64,
    /// The member that gets a ticket for the entry.
    pub then: Option<Name>,
    /// The owner's note for the entry.
    pub note: Vec<u8>,
}

/// A failed attempt to redeem tickets.
enum FetchFailure {
    /// Nothing was received yet; a new connection may succeed.
    Early(Failure),
    /// A retry is of no use.
    Late(Failure),
}

impl Lending {
    /// Carries an order out over one TCP connection. Dropping the future removes the entry.
    ///
    /// # Errors
    /// [`Failure`]; no entry is created then.
    pub async fn fetch(&self, owner: &MeshPeer, mut order: FetchOrder) -> Result<Reply, Failure> {
        let began = Instant::now();
        let note = std::mem::take(&mut order.note);
        let mut filling = self.spool.begin(owner.key(), order.id, order.bytes, note)?;
        let upstream = |why: String| Failure::Upstream { node: order.from.clone(), why };
        let fresh = self.spares.take(&order.from, true).await;
        let mut fresh = fresh.map_err(|e| upstream(e.to_string()))?;
        let mut result = redeem(&mut fresh.remote, &order, &mut filling).await;
        if let (Err(FetchFailure::Early(_)), true) = (&result, fresh.spare) {
            // The spare was closed while it was idle; a new connection is not affected.
            let opened = Remote::open(self.spares.dialer(), &order.from, &[]).await;
            fresh.remote = opened.map_err(|e| upstream(e.to_string()))?;
            result = redeem(&mut fresh.remote, &order, &mut filling).await;
        }
        result.map_err(|(FetchFailure::Early(why) | FetchFailure::Late(why))| why)?;
        tokio::spawn(fresh.remote.close());
        let parts = filling.finish().await?;
        let ticket = match order.then {
            Some(to) => {
                Some(self.tickets.issue(owner.key(), to, TicketTarget::Spooled(order.id))?)
            }
            None => None,
        };
        let micros = began.elapsed().as_micros() as u64;
        let most = self.spool.peak(owner.key(), order.id.job);
        Ok(Reply::Fetched { parts, micros, most, ticket })
    }
}

/// Redeems all tickets and adds their parts to the entry.
async fn redeem(
    remote: &mut Remote,
    order: &FetchOrder,
    filling: &mut Filling,
) -> Result<(), FetchFailure> {
    let node = remote.node().clone();
    let failed = |why: RemoteError| {
        let why = match why {
            RemoteError::Refused { why, .. } => why.to_string(),
            why => why.to_string(),
        };
        Failure::Upstream { node: node.clone(), why }
    };
    let early = |why| FetchFailure::Early(failed(why));
    let late = |why| FetchFailure::Late(failed(why));
    for ticket in &order.tickets {
        remote.ask(&Request::Redeem(*ticket)).await.map_err(early)?;
    }
    let (mut part, mut room) = (Vec::new(), MAX_PARTS as i64);
    for ticket in 0..order.tickets.len() {
        let parts = with_timeout(&node, remote.parts()).await?;
        let parts = parts.map_err(|why| match why {
            why @ RemoteError::Lost { .. } if ticket == 0 => early(why),
            why => late(why),
        })?;
        room -= i64::from(parts);
        if room < 0 {
            let why = Failure::System(format!("an entry has at most {MAX_PARTS} parts"));
            return Err(FetchFailure::Late(why));
        }
        for _ in 0..parts {
            let result = with_timeout(&node, remote.part(&mut part)).await?.map_err(late)?;
            filling.push(&part, result).await.map_err(FetchFailure::Late)?;
        }
        remote.end_parts().await.map_err(late)?;
    }
    Ok(())
}

/// Waits for a step of the other node, at most [`PART_TIMEOUT`].
async fn with_timeout<T>(node: &Name, step: impl Future<Output = T>) -> Result<T, FetchFailure> {
    timeout(PART_TIMEOUT, step).await.map_err(|_| {
        let why = format!("it has sent no complete part for {PART_TIMEOUT:?}");
        FetchFailure::Late(Failure::Upstream { node: node.clone(), why })
    })
}
