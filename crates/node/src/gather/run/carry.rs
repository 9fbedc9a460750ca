//! The executor of each method.

use super::{
    super::{
        Errand, LandError, Method, fluid,
        slotted::{self, Course, Scheme},
    },
    Ready,
};
use std::{collections::BTreeMap, time::Duration};
use thalweg_plan::collection::{Rule, Timetable};
use thalweg_wire::object::JobId;

/// How the bytes came.
#[derive(Debug, Default)]
pub(super) struct Carried {
    /// Sources that have data left, and why.
    pub failed: Vec<(u32, String)>,
    /// The most bytes that each participant held for others at a time.
    pub storage: BTreeMap<u32, u64>,
    /// Messages to other nodes that only synchronise.
    pub messages: u64,
    /// Bytes that were not carried by the path that was planned.
    pub off_plan: u64,
    /// What synchronising took of the transfers' time, over all of them.
    pub overhead: Duration,
}

/// Carries the plan out; direct methods with so many `connections` to each source.
///
/// # Errors
///
/// [`LandError::All`]: nothing more can be kept.
pub(super) async fn out(
    errand: &Errand,
    ready: &Ready,
    connections: u32,
) -> Result<Carried, LandError> {
    let timetable =
        || ready.plan.timetable.clone().unwrap_or(Timetable { slots: 0, paths: vec![] });
    let scheme = match ready.method {
        Method::Fluid => {
            let outcome = fluid::run(errand, fluid::Settings::default()).await?;
            return Ok(Carried { failed: outcome.failed, ..Carried::default() });
        }
        Method::Scheduled(rule) => Scheme::Paths(timetable(), rule),
        Method::BestPath => Scheme::Paths(timetable(), Rule::Chain),
        Method::Direct(direct) => Scheme::Direct(direct, connections),
    };
    let id = ready.landing.job().id.bytes();
    let seed = id.iter().take(8).fold(0, |seed, byte| seed << 8 | u64::from(*byte));
    let course = Course { scheme, unit: ready.grid.unit, job: JobId(id), seed };
    let outcome = slotted::run(errand, course).await?;
    Ok(Carried {
        overhead: outcome.overhead(),
        failed: outcome.failed,
        storage: outcome.storage,
        messages: outcome.messages,
        off_plan: outcome.left_over,
    })
}
