//! Fetches the data that the schedule left over: directly or, if that fails, through relays.

use super::{
    schedule_state::ScheduleState,
    source_transfer::{transfer, transfer_via},
};
use std::{sync::Arc, time::Duration};
use thalweg_files::land::LandError;
use tokio::{task::JoinSet, time::sleep};

/// Consecutive attempts to reach a source over all paths without receiving a byte.
const TRIES: u32 = 4;

/// The pause before the second attempt; it doubles before each further one.
const PAUSE: Duration = Duration::from_millis(500);

/// Fetches the data of all sources at the same time, until it is here or known to be unavailable.
///
/// # Errors
/// [`LandError::All`].
pub async fn fetch(state: &Arc<ScheduleState>) -> Result<(), LandError> {
    let mut tasks = JoinSet::new();
    for source in (0..state.context.overlay.sources as u32).filter(|s| state.waiting(*s) > 0) {
        let state = state.clone();
        tasks.spawn(async move { fetch_source(&state, source).await });
    }
    while let Some(ended) = tasks.join_next().await {
        // A panic has already been printed.
        if let Ok(ended) = ended {
            ended?;
        }
    }
    state.record_end();
    Ok(())
}

async fn fetch_source(state: &Arc<ScheduleState>, source: u32) -> Result<(), LandError> {
    let (mut tries, mut pause) = (0, PAUSE);
    while state.waiting(source) > 0 {
        let before = state.remaining(source);
        let mut why = transfer(state, source, u64::MAX, false).await?.failed;
        if why.is_some() && state.remaining(source) == before {
            // Data is sealed between the two ends, so the relay need not be trusted.
            why = fetch_through_others(state, source).await?.or(why);
        }
        if state.remaining(source) < before {
            (tries, pause) = (0, PAUSE);
            continue;
        }
        tries += 1;
        if tries == TRIES {
            state.source_failed(source, why.unwrap_or_else(|| "no data arrives".to_owned()));
            break;
        }
        sleep(pause).await;
        pause *= 2;
    }
    Ok(())
}

/// Fetches through the first relay that delivers anything. If none does, returns the last failure.
async fn fetch_through_others(
    state: &ScheduleState,
    source: u32,
) -> Result<Option<String>, LandError> {
    let mut why = None;
    let to = state.context.overlay.destination();
    for node in state.context.overlay.intermediates(source) {
        if state.avoids_way(source, &[source, node, to]) {
            continue;
        }
        let via = [state.name(node).clone()];
        let moved = transfer_via(state, source, &via, u64::MAX).await?;
        if moved.bytes > 0 {
            return Ok(None);
        }
        why = moved.failed;
    }
    Ok(why)
}
