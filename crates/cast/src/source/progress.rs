//! Reports the progress of all receivers, once a second.

use super::{
    event::{Event, ParentRate, ReceiverProgress, ReceiverState, RelayProgress},
    member::{CastContext, Member},
};
use std::sync::Arc;

/// Sends the event [`Event::Progress`].
pub fn report(casting: &CastContext, members: &[Arc<Member>], relays: &[Arc<Member>]) {
    casting.events.event(&Event::Progress {
        seconds: casting.began.elapsed().as_secs_f64(),
        total_bytes: casting.store.known.offer.length,
        served_bytes: casting.served(),
        ring_peak_bytes: casting.rings.node.ring.peak(),
        receivers: members.iter().map(|member| progress(casting, member)).collect(),
        relays: relays.iter().map(|relay| relay_progress(relay)).collect(),
    });
}

fn relay_progress(relay: &Member) -> RelayProgress {
    let account = relay.known().account;
    RelayProgress {
        name: relay.name.clone(),
        missed_symbols: account.missed,
        ring_peak_bytes: account.ring_peak,
    }
}

fn progress(casting: &CastContext, member: &Member) -> ReceiverProgress {
    let known = member.known();
    let left = casting.store.known.offer.length.saturating_sub(known.account.held);
    let is_moving = known.standing == ReceiverState::Receiving && known.account.bps > 0;
    let parent = |from: &thalweg_wire::cast::ParentReport| ParentRate {
        name: from.name.clone().unwrap_or_else(|| casting.dialer.me().clone()),
        rate_bps: from.bps,
        bytes: from.bytes,
    };
    let parents = known.account.parents.iter().filter(|from| from.is_now);
    ReceiverProgress {
        name: member.name.clone(),
        state: known.standing,
        held_bytes: known.account.held,
        rate_bps: known.account.bps,
        min_hop_bps: member.part.min_hop_bps,
        left_seconds: is_moving.then(|| left as f64 * 8.0 / known.account.bps as f64),
        missed_symbols: known.account.missed,
        ring_peak_bytes: known.account.ring_peak,
        parents: parents.map(parent).collect(),
    }
}
