//! Races several attempts to reach one destination, with staggered starts, and takes the first connection that is
//! established.

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use std::{
    collections::VecDeque,
    io,
    num::NonZeroU32,
    sync::Arc,
    time::{Duration, Instant as Clock},
};
use thalweg_net::{Cause, DialError, Dialer, Stream};
use thalweg_paths::chooser::{PathAttempt, PathRace};
use thalweg_uplinks::interfaces::Passage;
use thalweg_wire::Destination;
use tokio::time::{Instant, sleep_until};

/// An established connection, and the path by which it was made.
#[derive(Debug)]
pub struct DialledConnection {
    pub stream: Stream,
    /// The name of the path.
    pub path: String,
    /// Time from the first attempt by this path until the connection was established.
    pub setup: Duration,
    /// Receives the connection's byte counts, if it was assigned to an interface.
    pub passage: Option<Arc<Passage>>,
}

/// The result of a race, and the detours that failed in it.
#[derive(Debug)]
pub struct RaceResult {
    /// The winner; otherwise the failure of the direct path.
    pub won: Result<DialledConnection, DialError>,
    /// The names of detours that failed.
    pub failed: Vec<String>,
    /// The interfaces by which no route leads to the destination.
    pub routeless: Vec<NonZeroU32>,
    /// The interfaces by which the destination itself was dialled.
    pub tried: Vec<NonZeroU32>,
}

/// Starts the attempts of `choice` in order, each at its scheduled time or as soon as an earlier one has failed.
/// Returns the first connection, and closes the others.
///
/// If the destination itself refuses, or its name cannot be resolved, no further detour is started: it would fail as
/// well, and the program would wait longer for the error.
pub async fn race(dialer: &Dialer, to: &Destination, choice: PathRace) -> RaceResult {
    let mut waiting: VecDeque<PathAttempt> = choice.into_attempts().into();
    let mut asked = Vec::new();
    let start = |way: PathAttempt, asked: &mut Vec<NonZeroU32>| {
        asked.extend(way.route.interface().filter(|_| way.route.is_direct()));
        attempt(dialer, to, way)
    };
    let mut running: FuturesUnordered<_> =
        waiting.pop_front().map(|way| start(way, &mut asked)).into_iter().collect();
    let (began, mut direct, mut last, mut failed) = (Instant::now(), None, None, Vec::new());
    let mut routeless = Vec::new();
    let mut due = waiting.front().map_or(began, |next| began + next.after);
    loop {
        tokio::select! {
            biased;
            Some((way, tried)) = running.next(), if !running.is_empty() => match tried {
                Ok(won) => return RaceResult { won: Ok(won), failed, routeless, tried: asked },
                Err(error) if way.route.is_direct() => {
                    if is_final(&error) {
                        // Another network of this host may give another answer.
                        waiting.retain(|way| way.route.is_direct());
                    }
                    let is_routeless = matches!(error.cause, Cause::NoRoute { .. });
                    routeless.extend(way.route.interface().filter(|_| is_routeless));
                    // The failure of the first interface is reported, because it is the preferred one.
                    (direct, due) = (direct.or(Some(error)), Instant::now());
                }
                Err(error) => {
                    failed.push(way.name);
                    (last, due) = (Some(error), Instant::now());
                }
            },
            () = sleep_until(due), if !waiting.is_empty() => {
                running.extend(waiting.pop_front().map(|way| start(way, &mut asked)));
                due = waiting.front().map_or(due, |next| began + next.after);
            }
            else => break,
        }
    }
    let won = match direct.or(last) {
        Some(error) => Err(error),
        // A race has at least one attempt, which left an error.
        None => attempt(dialer, to, PathAttempt::direct()).await.1,
    };
    RaceResult { won, failed, routeless, tried: asked }
}

async fn attempt(
    dialer: &Dialer,
    to: &Destination,
    way: PathAttempt,
) -> (PathAttempt, Result<DialledConnection, DialError>) {
    let began = Clock::now();
    let dialled = match way.ahead {
        Some(ahead) => dialer.clone().with_receive_limit(ahead).dial(&way.route, to).await,
        None => dialer.dial(&way.route, to).await,
    };
    let path = way.name.clone();
    let setup = began.elapsed();
    (way, dialled.map(|stream| DialledConnection { stream, path, setup, passage: None }))
}

/// Whether a detour would fail for the same reason.
fn is_final(error: &DialError) -> bool {
    match &error.cause {
        Cause::Resolve(_) | Cause::NoAddress => true,
        Cause::Connect { source, .. } => source.kind() == io::ErrorKind::ConnectionRefused,
        _ => false,
    }
}
