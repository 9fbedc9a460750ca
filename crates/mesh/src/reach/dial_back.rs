//! Asks relays whether they can dial this node.

use super::{ReachSettings, TEST_TIMEOUT, backoff, relay_channel::RelayChannel};
use futures_util::future::join_all;
use std::time::Duration;
use thalweg_wire::mesh::{Member, ReachAnswer, ReachOpening, Roster};
use tokio::time::sleep;

/// The relays that are asked.
const ASKED: usize = 2;

/// A second test follows a failure after this time: a busy host may miss one.
const BEFORE_SECOND: Duration = Duration::from_secs(2);

/// Whether relays reach this node at its listed addresses; `None` if no relay has answered. One that does not reach it
/// twice is enough for no: another network may be between.
pub(super) async fn test(settings: &ReachSettings, roster: &Roster, me: &Member) -> Option<bool> {
    match test_once(settings, roster, me).await {
        Some(false) => {
            sleep(BEFORE_SECOND).await;
            test_once(settings, roster, me).await
        }
        found => found,
    }
}

async fn test_once(settings: &ReachSettings, roster: &Roster, me: &Member) -> Option<bool> {
    let others = roster.relays().filter(|relay| relay.node != me.node);
    let mut relays: Vec<&Member> = others.collect();
    backoff::shuffle(&mut relays);
    let asked = relays.into_iter().take(ASKED).map(|relay| ask(settings, relay));
    let answers: Vec<bool> = join_all(asked).await.into_iter().flatten().collect();
    (!answers.is_empty()).then(|| answers.iter().all(|is_dialled| *is_dialled))
}

/// The relay's answer; `None` if it has none.
async fn ask(settings: &ReachSettings, relay: &Member) -> Option<bool> {
    let opened = RelayChannel::open(&settings.connector, relay, TEST_TIMEOUT).await;
    match opened.ok()?.ask(ReachOpening::DialBack, TEST_TIMEOUT).await {
        Ok(ReachAnswer::DialledBack(is_dialled)) => Some(is_dialled),
        _ => None,
    }
}
