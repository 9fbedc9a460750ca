//! Fetches the data that the schedule left over: directly or, if that fails, through relays.

use super::{
    draw::{draw, draw_by},
    scene::Scene,
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
pub async fn fetch(scene: &Arc<Scene>) -> Result<(), LandError> {
    let mut tasks = JoinSet::new();
    for source in (0..scene.context.overlay.sources as u32).filter(|s| scene.waiting(*s) > 0) {
        let scene = scene.clone();
        tasks.spawn(async move { of(&scene, source).await });
    }
    while let Some(ended) = tasks.join_next().await {
        // A panic has already been printed.
        if let Ok(ended) = ended {
            ended?;
        }
    }
    scene.over();
    Ok(())
}

async fn of(scene: &Arc<Scene>, source: u32) -> Result<(), LandError> {
    let (mut tries, mut pause) = (0, PAUSE);
    while scene.waiting(source) > 0 {
        let before = scene.remaining(source);
        let mut why = draw(scene, source, u64::MAX, false).await?.failed;
        if why.is_some() && scene.remaining(source) == before {
            // Data is sealed between the two ends, so the relay need not be trusted.
            why = by_way_of_others(scene, source).await?.or(why);
        }
        if scene.remaining(source) < before {
            (tries, pause) = (0, PAUSE);
            continue;
        }
        tries += 1;
        if tries == TRIES {
            scene.source_failed(source, why.unwrap_or_else(|| "no data arrives".to_owned()));
            break;
        }
        sleep(pause).await;
        pause *= 2;
    }
    Ok(())
}

/// Fetches through the first relay that delivers anything. If none does, returns the last failure.
async fn by_way_of_others(scene: &Scene, source: u32) -> Result<Option<String>, LandError> {
    let mut why = None;
    let to = scene.context.overlay.destination();
    for node in scene.context.overlay.intermediates(source) {
        if scene.avoids_way(source, &[source, node, to]) {
            continue;
        }
        let via = [scene.name(node).clone()];
        let moved = draw_by(scene, source, &via, u64::MAX).await?;
        if moved.bytes > 0 {
            return Ok(None);
        }
        why = moved.failed;
    }
    Ok(why)
}
