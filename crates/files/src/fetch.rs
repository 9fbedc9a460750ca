//! Fetching for another member: from a node that it has a ticket of, into the spool.

use super::{lending::Lending, spool::Filling, ticket::Lent};
use crate::remote::{Remote, RemoteError};
use std::time::Duration;
use thalweg_mesh::MeshPeer;
use thalweg_wire::{
    mesh::Name,
    object::{Failure, MAX_PARTS, Reply, Request, SpoolId, Ticket},
};
use tokio::time::{Instant, timeout};

/// A part that takes longer is not waited for: 1 MiB in this time is 3.5 kB/s. Else a node that says that
/// it is at work, or sends a byte now and then, would hold what came before.
const STALLED: Duration = Duration::from_secs(300);

/// What a member asks to be fetched; [`Request::Fetch`].
#[derive(Clone, Debug)]
pub struct Order {
    /// What it is called from now on.
    pub id: SpoolId,
    /// Who has it.
    pub from: Name,
    /// Its tickets.
    pub tickets: Vec<Ticket>,
    /// How many bytes at most.
    pub bytes: u64,
    /// Who gets a ticket for it.
    pub then: Option<Name>,
    /// What it is to be told of it.
    pub note: Vec<u8>,
}

/// No spare answered, or nobody.
enum Broken {
    /// Nothing has come yet; another connection may do better.
    Early(Failure),
    /// It is no use to go on.
    Late(Failure),
}

impl Lending {
    /// Carries an order out, over one TCP connection. Dropping the future leaves nothing behind.
    ///
    /// # Errors
    /// [`Failure`]; nothing is kept then.
    pub async fn fetch(&self, owner: &MeshPeer, mut order: Order) -> Result<Reply, Failure> {
        let began = Instant::now();
        let note = std::mem::take(&mut order.note);
        let mut filling = self.spool.begin(owner.key(), order.id, order.bytes, note)?;
        let upstream = |why: String| Failure::Upstream { node: order.from.clone(), why };
        let fresh = self.spares.take(&order.from, true).await;
        let mut fresh = fresh.map_err(|e| upstream(e.to_string()))?;
        let mut came = redeem(&mut fresh.remote, &order, &mut filling).await;
        if let (Err(Broken::Early(_)), true) = (&came, fresh.spare) {
            // It was closed while it waited; a new one was not.
            let opened = Remote::open(self.spares.reach(), &order.from, &[]).await;
            fresh.remote = opened.map_err(|e| upstream(e.to_string()))?;
            came = redeem(&mut fresh.remote, &order, &mut filling).await;
        }
        came.map_err(|(Broken::Early(why) | Broken::Late(why))| why)?;
        tokio::spawn(fresh.remote.close());
        let parts = filling.finish().await?;
        let ticket = match order.then {
            Some(to) => Some(self.tickets.issue(owner.key(), to, Lent::Spooled(order.id))?),
            None => None,
        };
        let micros = began.elapsed().as_micros() as u64;
        let most = self.spool.most(owner.key(), order.id.job);
        Ok(Reply::Fetched { parts, micros, most, ticket })
    }
}

/// All that the tickets are for.
async fn redeem(remote: &mut Remote, order: &Order, filling: &mut Filling) -> Result<(), Broken> {
    let node = remote.node().clone();
    let failed = |why: RemoteError| {
        let why = match why {
            RemoteError::Refused { why, .. } => why.to_string(),
            why => why.to_string(),
        };
        Failure::Upstream { node: node.clone(), why }
    };
    let early = |why| Broken::Early(failed(why));
    let late = |why| Broken::Late(failed(why));
    for ticket in &order.tickets {
        remote.ask(&Request::Redeem(*ticket)).await.map_err(early)?;
    }
    let (mut part, mut room) = (Vec::new(), MAX_PARTS as i64);
    for ticket in 0..order.tickets.len() {
        let parts = moving(&node, remote.parts()).await?;
        let parts = parts.map_err(|why| match why {
            why @ RemoteError::Lost { .. } if ticket == 0 => early(why),
            why => late(why),
        })?;
        room -= i64::from(parts);
        if room < 0 {
            let why = Failure::System(format!("an entry has at most {MAX_PARTS} parts"));
            return Err(Broken::Late(why));
        }
        for _ in 0..parts {
            let came = moving(&node, remote.part(&mut part)).await?.map_err(late)?;
            filling.push(&part, came).await.map_err(Broken::Late)?;
        }
        remote.end_parts().await.map_err(late)?;
    }
    Ok(())
}

/// A step of the other node's, which must not last.
async fn moving<T>(node: &Name, step: impl Future<Output = T>) -> Result<T, Broken> {
    timeout(STALLED, step).await.map_err(|_| {
        let why = format!("it has sent nothing whole for {STALLED:?}");
        Broken::Late(Failure::Upstream { node: node.clone(), why })
    })
}
