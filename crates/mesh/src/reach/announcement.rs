//! Tells the oracle the relays through which this node is reached, until the roster has them.

use super::{ReachView, backoff::jitter};
use crate::{Membership, OracleClient};
use std::{collections::BTreeSet, time::Duration};
use thalweg_units::NodeId;
use thalweg_wire::mesh::{Name, ReachRequest};
use tokio::{sync::watch, time::timeout};

/// How long the roster may take to have what the oracle has accepted.
const SETTLES: Duration = Duration::from_secs(10);

/// The first pause after a failure; each is twice the one before.
const LEAST: Duration = Duration::from_secs(1);

/// The longest pause.
const MOST: Duration = Duration::from_secs(30);

/// Runs for ever.
pub(super) async fn announce(
    oracle: OracleClient,
    membership: Membership,
    key: NodeId,
    mut wanted: watch::Receiver<Option<Vec<Name>>>,
    view: ReachView,
) {
    let mut rosters = membership.subscribe();
    let mut failures = 0;
    loop {
        rosters.mark_unchanged();
        let relays = wanted.borrow_and_update().clone();
        let relays = relays.filter(|relays| !is_listed(&membership, &key, relays));
        let pause = match relays {
            None => Duration::MAX,
            Some(relays) => match oracle.reach(&ReachRequest { relays }).await {
                Ok(_) => {
                    failures = 0;
                    SETTLES
                }
                Err(why) => {
                    view.trouble(format!("the oracle was not told the relays: {why}"));
                    failures += 1;
                    let full = LEAST.saturating_mul(1 << failures.min(8)).min(MOST);
                    full / 2 + jitter(full / 2)
                }
            },
        };
        let change = async {
            tokio::select! {
                changed = wanted.changed() => changed.is_ok(),
                _ = rosters.changed() => true,
            }
        };
        // The wish's sender lives as long as this future.
        if timeout(pause, change).await == Ok(false) {
            return;
        }
    }
}

/// Whether the roster names these relays, in whatever order, or not this node at all.
fn is_listed(membership: &Membership, key: &NodeId, relays: &[Name]) -> bool {
    let roster = membership.current();
    let Some(me) = roster.as_ref().and_then(|roster| roster.by_key(key)) else { return true };
    let listed: BTreeSet<Name> = me.reach_relays().collect();
    listed == relays.iter().cloned().collect()
}
