//! Carries out the paper's methods: starts each transfer when its schedule allows it.
//!
//! Source: Cheng et al., *Large-scale Data Collection: a Coordinated Approach* (INFOCOM 2004), §IV and
//! §V. The destination is the one who synchronises: it asks an intermediate to fetch, hears
//! when that is done, and only then lets the next transfers begin.
//!
//! ```text
//! agenda: which transfers may begin ─► source → here          draw: reads, as they come
//!   ▲  Release, DirectRelease          source → intermediate  parcel: tickets; Fetch
//!   │                                  intermediate → next    Fetch, with the ticket of the hop before
//!   └── done ◄─────────────────────────intermediate → here    Spooled: each part against the source's hash
//! ```
//!
//! A transfer is one TCP connection that nothing has passed before. What a path carries is taken
//! from [`Work`](super::Work) when it is about to leave its source, as one entry of the spools on its way.
//! What does not come is put back, carried by the source's later paths, and what is left
//! after the schedule is fetched in any way that works. What a node holds whole is taken from there after the
//! schedule, if that node is there again, and by the next session if this one is killed (`adopt`): it does not leave its
//! source twice.
//!
//! Round trips that a step waits for, besides its data and its connections' slow start; D is this
//! host, X fetches from S:
//!
//! | transfer | in turn | round trips |
//! |---|---|---|
//! | S → X    | `Fetch` D→X, `Redeem` X→S, data S→X, `Fetched` X→D | ½ DX + 1 XS + ½ DX |
//! | X → D    | `Spooled` D→X, data                                | 1 DX |
//! | S → D    | `ReadParts` D→S, data                              | 1 DS |
//!
//! Those are the paper's: the destination lets a step begin, and hears of its end. Nothing else is
//! waited for. Connections of transfers are open before (a TCP handshake and a channel's proof, 3
//! round trips, and on a lossy leg a lost SYN's second): [`Spares`](thalweg_files::remote::Spares) keeps as many as begin at a time,
//! `warmth` has those of a leg opened two slots before it is first used. So are the channels for
//! orders. Tickets are drawn two slots ahead (1 DS); what the source says it sent (`Sent`, 1 DS)
//! comes while the data goes on; what nobody needs is dropped a batch at a time, by the way.
//! By their best paths ([`Rule::Chain`]) hosts wait for nobody: data goes straight to D
//! on one connection, or as parcels of which two are on each leg (`lanes`).

mod adopt;
mod agenda;
mod blame;
mod conductor;
mod draw;
mod drops;
mod entry;
mod hop;
mod lanes;
mod ledger;
mod lend;
mod marks;
mod parcel;
mod pool;
mod recheck;
mod rest;
mod scene;
mod single;
mod verify;
mod warmth;

pub use ledger::{Outcome, TransferTime};

use super::Errand;
use conductor::Conductor;
use scene::Scene;
use std::sync::Arc;
use thalweg_files::land::LandError;
use thalweg_plan::collection::{Direct, Rule, Timetable};
use thalweg_units::ByteSize;
use thalweg_wire::object::JobId;
use tokio::time::Instant;

/// Which schedule.
#[derive(Clone, Debug, PartialEq)]
pub enum Scheme {
    /// A timetable by this rule: PathSyncX, PathDelay, best paths.
    Paths(Timetable, Rule),
    /// Each source by itself to this host, over so many connections at a time.
    Direct(Direct, u32),
}

/// A schedule, and what is to be known to carry it out.
#[derive(Clone, Debug, PartialEq)]
pub struct Course {
    /// The schedule.
    pub scheme: Scheme,
    /// The data unit of the timetable.
    pub unit: ByteSize,
    /// The collection, the same in all its sessions.
    pub job: JobId,
    /// There was a session before: what participants still hold of it is taken from them. Else what they hold
    /// is dropped.
    pub resumed: bool,
    /// For the draws of the direct methods.
    pub seed: u64,
}

/// Carries a schedule out, and fetches what is left over. Sources that could not be reached are in
/// the outcome; files that are not to be had are given up at the landing.
///
/// Ends early, without an error, when the errand is to be stopped.
///
/// # Errors
///
/// [`LandError::All`]: nothing more can be kept.
pub async fn run(errand: &Errand, course: Course) -> Result<Outcome, LandError> {
    let began = Instant::now();
    let scene = Arc::new(Scene::new(errand.clone(), &course, began));
    let ended = tokio::select! {
        biased;
        () = errand.stop.cancelled() => Ok(()),
        ended = whole(&scene, course) => ended,
    };
    // Who stops half way may come back for what is held.
    if ended.is_ok() && !errand.stop.is_cancelled() {
        scene.tidy().await;
    }
    ended.map(|()| scene.outcome())
}

async fn whole(scene: &Arc<Scene>, course: Course) -> Result<(), LandError> {
    let adopted = match course.resumed {
        true => adopt::find(scene).await,
        false => Vec::new(),
    };
    let conductor = Conductor::new(scene.clone(), course).await;
    tokio::try_join!(conductor.run(), adopt::take(scene, adopted))?;
    scene.schedule_over();
    tokio::try_join!(rest::fetch(scene), adopt::take_stranded(scene))?;
    // What was not to be had there.
    rest::fetch(scene).await
}
