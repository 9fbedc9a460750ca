//! The report of a reception for `thalweg cast status`.

use super::reception::{Reception, State};
use crate::average_bps;
use serde_json::{Value, json};
use thalweg_wire::cast::ParentReport;

/// The current report as JSON.
pub fn to_json(reception: &Reception) -> Value {
    let offer = reception.offer().into_value();
    let account = reception.account(false);
    let record = reception.record();
    let expected = record.expected.unwrap_or_default();
    let (state, why) = match reception.state() {
        State::New => ("new", None),
        State::Fetching(_) => ("fetching", None),
        State::Checking(_) => ("checking", None),
        State::Complete(..) => ("complete", None),
        State::Failed(why) => ("failed", Some(why.to_string())),
    };
    let parent = |parent: &ParentReport| {
        json!({
            "name": parent.name.as_ref().unwrap_or(&reception.source),
            "is_source": parent.name.is_none(),
            "is_now": parent.is_now,
            "rate_bps": parent.bps,
            "bytes": parent.bytes,
        })
    };
    // The duration is not known if an earlier process received the object.
    let average = match reception.state() {
        State::Complete(_, micros) => {
            let new = account.received.saturating_sub(account.beyond);
            average_bps(new, micros as f64 / 1e6)
        }
        _ => None,
    };
    let missing = offer.length.saturating_sub(account.held);
    let is_moving = state == "fetching";
    json!({
        "cast": reception.home.id.to_string(),
        "job": record.job,
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
        "ring_peak_bytes": account.ring_peak,
        "solved_blocks": reception.solved(),
        "rate_bps": account.bps,
        "average_bps": average,
        "min_hop_bps": expected.min_hop_bps,
        "expected_bps": expected.bps,
        "left_seconds": is_moving.then(|| left(missing, account.bps, expected.bps)).flatten(),
        "way": expected.way,
        "receivers": expected.receivers,
        "parents": account.parents.iter().map(parent).collect::<Vec<_>>(),
        "children": reception.children(),
    })
}

/// Seconds until the object is complete, at the current rate, or at the planned rate if nothing arrives now; `None` if
/// neither is known.
fn left(missing: u64, now: u64, planned: Option<u64>) -> Option<f64> {
    let bps = Some(now).filter(|bps| *bps > 0).or(planned).filter(|bps| *bps > 0)?;
    Some(missing as f64 * 8.0 / bps as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_follows_the_current_rate_or_the_plan() {
        assert_eq!(left(1_000_000, 8_000_000, Some(1)), Some(1.0));
        assert_eq!(left(1_000_000, 0, Some(4_000_000)), Some(2.0));
        assert_eq!(left(1_000_000, 0, None), None);
        assert_eq!(left(1_000_000, 0, Some(0)), None);
    }
}
