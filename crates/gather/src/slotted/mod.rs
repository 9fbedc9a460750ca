//! Carries out the paper's methods: begins each transfer when its schedule allows it.
//!
//! Source: Cheng et al., *Large-scale Data Collection: a Coordinated Approach* (INFOCOM 2004), §IV and §V. The
//! destination synchronises the transfers: it asks an intermediate to fetch, hears when that is done, and only then
//! lets the next transfers begin.
//!
//! ```text
//! agenda: which transfers may begin ─► source → here          source_transfer: reads, as they come
//!   ▲  Release, DirectRelease          source → intermediate  parcel: tickets; Fetch
//!   │                                  intermediate → next    Fetch, with the ticket of the hop before
//!   └── done ◄─────────────────────────intermediate → here    Spooled: each part against the source's hash
//! ```
//!
//! A transfer is one fresh TCP connection. A path's data is taken from [`Work`](super::Work) when it is about to leave
//! its source, as one entry of the spools on its path. Data that does not arrive is put back and carried by the
//! source's later paths; data left after the schedule is fetched by any path that works. Data that a node holds
//! completely is fetched from there after the schedule, if that node is reachable again, or by the next session if this
//! one is killed (`stranded_data`). So it does not leave its source twice.
//!
//! The table counts the round trips that a step waits for, besides its data and its connections' slow start. D is this
//! host; X fetches from S:
//!
//! | transfer | in turn | round trips |
//! |---|---|---|
//! | S → X    | `Fetch` D→X, `Redeem` X→S, data S→X, `Fetched` X→D | ½ DX + 1 XS + ½ DX |
//! | X → D    | `Spooled` D→X, data                                | 1 DX |
//! | S → D    | `ReadParts` D→S, data                              | 1 DS |
//!
//! These round trips are the paper's: the destination lets a step begin, and hears of its end. Nothing else is waited
//! for. The connections of transfers are opened before (a TCP handshake and the channel's proof, 3 round trips; on a
//! lossy leg also a second for a lost SYN): [`Spares`](thalweg_files::remote::Spares) keeps as many as begin at a time,
//! and `connection_plan` has the connections of a leg opened two slots before its first use. The channels for orders
//! are opened early, too. Tickets are drawn two slots ahead (1 DS). The source's hashes of sent data (`Sent`, 1 DS)
//! arrive while the data moves on. Unneeded entries are dropped in batches, without waiting. On best paths
//! ([`Rule::Chain`]) hosts wait for no other host: data goes directly to D on one connection, or as parcels of which
//! two are on each leg (`lanes`).

mod agenda;
mod conductor;
mod connection_plan;
mod entry;
mod failure_record;
mod hop;
mod lanes;
mod ledger;
mod leftover_data;
mod marks;
mod merged_streams;
mod parcel;
mod pending_deletions;
mod pool;
mod recheck;
mod schedule_state;
mod source_transfer;
mod stranded_data;
mod tickets;
mod verify;

pub use ledger::{ScheduleOutcome, TransferTime};

use super::CollectContext;
use conductor::ScheduleConductor;
use schedule_state::ScheduleState;
use std::sync::Arc;
use thalweg_files::land::LandError;
use thalweg_plan::collection::{Direct, Rule, Timetable};
use thalweg_units::ByteSize;
use thalweg_wire::object::JobId;
use tokio::time::Instant;

/// A kind of schedule.
#[derive(Clone, Debug, PartialEq)]
pub enum Scheme {
    /// A timetable with this release rule: PathSyncX, PathDelay or best paths.
    Paths(Timetable, Rule),
    /// Each source sends directly to this host, over this many connections at a time.
    Direct(Direct, u32),
}

/// A schedule and the parameters of its execution.
#[derive(Clone, Debug, PartialEq)]
pub struct ScheduledRun {
    pub scheme: Scheme,
    /// The data unit of the timetable.
    pub unit: ByteSize,
    /// The job of the collection, the same in all its sessions.
    pub job: JobId,
    /// Whether there was an earlier session. If so, data that participants still hold of it is fetched from them;
    /// otherwise it is dropped.
    pub resumed: bool,
    /// The seed for the random choices of the direct methods.
    pub seed: u64,
}

/// Carries out a schedule, and fetches the data left over. The outcome lists sources that could not be reached; files
/// that cannot be fetched are given up at the landing.
///
/// Ends early, without an error, if the collection is stopped.
///
/// # Errors
///
/// [`LandError::All`]: nothing more can be stored.
pub async fn run(
    context: &CollectContext,
    schedule: ScheduledRun,
) -> Result<ScheduleOutcome, LandError> {
    let began = Instant::now();
    let state = Arc::new(ScheduleState::new(context.clone(), &schedule, began));
    let ended = tokio::select! {
        biased;
        () = context.stop.cancelled() => Ok(()),
        ended = whole(&state, schedule) => ended,
    };
    // A stopped collection may be resumed and then use the held data.
    if ended.is_ok() && !context.stop.is_cancelled() {
        state.delete_all().await;
    }
    ended.map(|()| state.outcome())
}

async fn whole(state: &Arc<ScheduleState>, schedule: ScheduledRun) -> Result<(), LandError> {
    let adopted = match schedule.resumed {
        true => stranded_data::find(state).await,
        false => Vec::new(),
    };
    let conductor = ScheduleConductor::new(state.clone(), schedule).await;
    tokio::try_join!(conductor.run(), stranded_data::fetch(state, adopted))?;
    state.record_schedule_end();
    tokio::try_join!(leftover_data::fetch(state), stranded_data::fetch_stranded(state))?;
    // The data that the stranded entries did not provide.
    leftover_data::fetch(state).await
}
