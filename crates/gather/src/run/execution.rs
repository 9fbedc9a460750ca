//! Selects the executor of each method.

use super::{
    super::{
        CollectContext, Method, fluid,
        slotted::{self, ScheduledRun, Scheme},
    },
    PreparedCollection, Request,
};
use std::{collections::BTreeMap, time::Duration};
use thalweg_files::land::LandError;
use thalweg_plan::collection::{Rule, Timetable, steering::SharedSet};
use thalweg_wire::object::JobId;

/// The result of the transfers.
#[derive(Debug, Default)]
pub(super) struct TransferOutcome {
    /// Sources with data left, and why.
    pub failed: Vec<(u32, String)>,
    /// The most bytes that each participant held for others at a time.
    pub storage: BTreeMap<u32, u64>,
    /// Messages to other nodes that only synchronise.
    pub messages: u64,
    /// Bytes that did not come by their planned path.
    pub off_plan: u64,
    /// The number of paths opened.
    pub ways: u32,
    /// How often rates differed from the planned ones.
    pub drifts: u32,
    /// Legs that were observed to slow each other.
    pub shared: Vec<SharedSet>,
    /// The synchronisation time of all transfers.
    pub overhead: Duration,
}

/// Carries out the plan.
///
/// # Errors
///
/// [`LandError::All`]: nothing more can be stored.
pub(super) async fn execute(
    context: &CollectContext,
    ready: &PreparedCollection,
    request: &Request,
) -> Result<TransferOutcome, LandError> {
    let timetable =
        || ready.plan.timetable.clone().unwrap_or(Timetable { slots: 0, paths: vec![] });
    let scheme = match ready.method {
        Method::Fluid => {
            let mut settings = fluid::Settings::default();
            settings.steering.ways = request.ways.unwrap_or(settings.steering.ways).max(1);
            return Ok(fluid::run(context, settings).await?.into());
        }
        Method::Scheduled(rule) => Scheme::Paths(timetable(), rule),
        Method::BestPath => Scheme::Paths(timetable(), Rule::Chain),
        Method::Direct(direct) => Scheme::Direct(direct, request.method.connections()),
    };
    let id = ready.landing.job().id.bytes();
    let seed = id.iter().take(8).fold(0, |seed, byte| seed << 8 | u64::from(*byte));
    let (unit, resumed) = (ready.grid.unit, ready.resumed);
    let schedule = ScheduledRun { scheme, unit, job: JobId(id), resumed, seed };
    let outcome = slotted::run(context, schedule).await?;
    Ok(TransferOutcome {
        overhead: outcome.overhead(),
        failed: outcome.failed,
        storage: outcome.storage,
        messages: outcome.messages,
        off_plan: outcome.left_over,
        ..TransferOutcome::default()
    })
}

impl From<fluid::FluidOutcome> for TransferOutcome {
    fn from(outcome: fluid::FluidOutcome) -> Self {
        let fluid::FluidOutcome { failed, ways, drifts, shared_sets: shared, .. } = outcome;
        Self { failed, ways, drifts, shared, ..Self::default() }
    }
}
