//! A cast here, as `thalweg cast status` shows it.

use super::reception::{Reception, State};
use serde_json::{Value, json};

/// What is known of it now.
pub fn of(reception: &Reception) -> Value {
    let offer = reception.offer().into_value();
    let account = reception.account(false);
    let (state, why) = match reception.state() {
        State::New => ("new", None),
        State::Fetching(_) => ("fetching", None),
        State::Checking(_) => ("checking", None),
        State::Complete(..) => ("complete", None),
        State::Failed(why) => ("failed", Some(why.to_string())),
    };
    let parent = |parent: &thalweg_wire::cast::FromParent| {
        json!({
            "name": parent.name.as_ref().unwrap_or(&reception.source),
            "is_source": parent.name.is_none(),
            "is_now": parent.is_now,
            "rate_bps": parent.bps,
            "bytes": parent.bytes,
        })
    };
    json!({
        "cast": reception.home.id.to_string(),
        "from": reception.source,
        "name": offer.name.to_string(),
        "inbox": reception.home.inbox.display().to_string(),
        "state": state,
        "why": why,
        "total_bytes": offer.length,
        "held_bytes": account.held,
        "received_bytes": account.received,
        "duplicate_bytes": account.beyond,
        "served_bytes": account.served,
        "missed_symbols": account.missed,
        "rate_bps": account.bps,
        "parents": account.parents.iter().map(parent).collect::<Vec<_>>(),
    })
}
