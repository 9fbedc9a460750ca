//! The relays through which members are reached that cannot be dialled (decision 0117).
//!
//! A member states its relays; the next roster has them. Many statements become one roster: when a relay fails, all
//! members that stand there move at once.

use crate::{
    Caller, OracleError, Refusal,
    limits::ChangeRate,
    registry::{Access, Registry},
};
use parking_lot::Mutex;
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use thalweg_wire::{
    Destination,
    mesh::{MAX_REACH_RELAYS, Member, Name, ReachReply, ReachRequest, Role, Roster, relay_entry},
};
use tokio::{
    sync::Mutex as AsyncMutex,
    time::{Instant, sleep_until},
};

/// The least time between two rosters with changed relays. A roster goes to all members, so more would cost more than
/// a second of waiting does.
const BETWEEN: Duration = Duration::from_secs(1);

/// Takes members' statements of their relays.
#[derive(Debug)]
pub(crate) struct ReachStatements {
    registry: Arc<Registry>,
    rate: ChangeRate,
    /// Statements for the next roster; one of each member.
    waiting: Mutex<BTreeMap<Name, Vec<Name>>>,
    /// When the last roster was published for them. Held by the one who publishes.
    last: AsyncMutex<Option<Instant>>,
}

impl ReachStatements {
    pub(crate) fn new(registry: Arc<Registry>) -> Self {
        let (rate, waiting) = (ChangeRate::default(), Mutex::default());
        Self { registry, rate, waiting, last: AsyncMutex::default() }
    }

    /// See [`crate::Oracle::set_reach`].
    pub(crate) async fn set(
        &self,
        caller: &Caller,
        request: ReachRequest,
    ) -> Result<ReachReply, OracleError> {
        let actor = self.registry.authorise(caller, Access::Member)?;
        let member = actor.0.filter(|member| caller.key() == member.node);
        let member = member.ok_or(Refusal::Bad("only a node states its relays".to_owned()))?;
        let roster = self.registry.newest();
        check(&roster.roster, &member, &request.relays)?;
        if member.reach_relays().eq(request.relays.iter().cloned()) {
            return Ok(ReachReply { version: roster.roster.version });
        }
        self.rate.pass(&member.principal()).map_err(Refusal::ChangesTooOften)?;
        self.waiting.lock().insert(member.name.clone(), request.relays);
        let mut last = self.last.lock().await;
        if let Some(last) = *last {
            sleep_until(last + BETWEEN).await;
        }
        let statements = std::mem::take(&mut *self.waiting.lock());
        // Empty: whoever came before has taken this statement along.
        if !statements.is_empty() {
            self.publish(statements).await?;
            *last = Some(Instant::now());
        }
        Ok(ReachReply { version: self.registry.newest().roster.version })
    }

    /// Publishes a roster with these relays. After an error the statements wait for the next one.
    async fn publish(&self, statements: BTreeMap<Name, Vec<Name>>) -> Result<(), OracleError> {
        let published = self.registry.set_reach(&statements).await;
        if published.is_err() {
            let mut waiting = self.waiting.lock();
            for (name, relays) in statements {
                waiting.entry(name).or_insert(relays);
            }
        }
        published
    }
}

/// The member with these relays instead of those that it had.
pub(crate) fn with_relays(member: &Member, relays: &[Name]) -> Member {
    let room = Member::MAX_ADDRESSES.saturating_sub(relays.len());
    let dialled = member.dialled_addresses().take(room).cloned();
    let addresses = dialled.chain(relays.iter().filter_map(relay_entry)).collect();
    Member { addresses, ..member.clone() }
}

/// The addresses, and after them the relays that the member has.
pub(crate) fn with_addresses(member: &Member, addresses: Vec<Destination>) -> Member {
    let relays: Vec<_> = member.reach_relays().collect();
    with_relays(&Member { addresses, ..member.clone() }, &relays)
}

fn check(roster: &Roster, member: &Member, relays: &[Name]) -> Result<(), Refusal> {
    if relays.len() > MAX_REACH_RELAYS {
        let why = format!("a member is reached through at most {MAX_REACH_RELAYS} relays");
        return Err(Refusal::Bad(why));
    }
    for (at, relay) in relays.iter().enumerate() {
        let is_relay = |m: &Member| m.is(Role::Relay) && m.is_dialled() && m.name != member.name;
        if relays[..at].contains(relay) || !roster.by_name(relay).is_some_and(is_relay) {
            let why = format!("{relay} is given twice, or is no relay with an address");
            return Err(Refusal::Bad(why));
        }
    }
    Ok(())
}
