//! Computes the totals of a collection.

use super::{
    super::{
        NodeStorage, Outcome, SharedBottleneck, SourceTotals, Totals, failures,
        landing::{FailedItem, Report, printable},
    },
    CollectionRun, PreparedCollection,
    execution::TransferOutcome,
};
use std::{collections::BTreeSet, path::Path, time::Duration};
use thalweg_files::land::LandError;
use thalweg_paths::overlay::Overlay;
use thalweg_plan::collection::steering::SharedSet;
use thalweg_units::{ByteSize, Rate};

impl Totals {
    /// The totals of a collection that was stopped before anything was moved.
    pub(super) fn interrupted() -> Self {
        Self { outcome: Outcome::Interrupted, ..Self::default() }
    }
}

impl CollectionRun {
    /// Returns the totals, and reports each missing file.
    pub(super) fn totals(
        &self,
        ready: &PreparedCollection,
        ended: Result<TransferOutcome, LandError>,
        report: Report,
        (sources, lost_bytes): (Vec<SourceTotals>, u64),
        took: Duration,
    ) -> Totals {
        self.report_failures(&ready.overlay, &report.failed);
        let mut failed: BTreeSet<u32> = ready.failed.iter().copied().collect();
        let mut stopped = report.stopped.as_ref().map(ToString::to_string);
        let carried = match ended {
            Ok(carried) => carried,
            Err(all) => {
                _ = stopped.get_or_insert(all.to_string());
                TransferOutcome::default()
            }
        };
        failed.extend(carried.failed.iter().map(|(source, _)| *source));
        let forecast = &ready.plan.forecast;
        let whole = report.is_complete() && failed.is_empty() && stopped.is_none();
        let outcome = match whole {
            true => Outcome::Complete,
            false if stopped.is_some() => Outcome::Failed,
            false if self.stop.is_cancelled() => Outcome::Interrupted,
            false => Outcome::Partial,
        };
        let came: u64 = sources.iter().map(|source| source.bytes).sum();
        let bytes = came.saturating_sub(lost_bytes);
        Totals {
            changes: report.changes,
            special_bits: 0,
            outcome,
            files: report.files,
            bytes,
            lost_bytes,
            duplicate_bytes: 0,
            present_files: report.skipped,
            failed_files: report.failed.len() as u64,
            unfinished_files: report.unfinished,
            failed_sources: failed.len() as u64,
            kept_bytes: report.kept_bytes,
            seconds: took.as_secs_f64(),
            rate_bps: Rate::over(ByteSize::from_bytes(bytes), took).as_bps(),
            planned_seconds: forecast.makespan_seconds,
            bound_seconds: forecast.bound_seconds,
            late: self.request.deadline.is_some_and(|most| self.began.elapsed() > most),
            sources,
            storage: self.storage(ready, &carried),
            messages: carried.messages,
            off_plan_bytes: carried.off_plan,
            ways: carried.ways,
            drifts: carried.drifts,
            shared: shared(ready, &carried.shared),
            overhead_seconds: carried.overhead.as_secs_f64(),
            why: stopped,
        }
    }

    fn storage(&self, ready: &PreparedCollection, carried: &TransferOutcome) -> Vec<NodeStorage> {
        let stored = |(node, bytes): (&u32, &u64)| {
            let node = ready.overlay.names.get(*node as usize)?.clone();
            Some(NodeStorage { node, bytes: *bytes })
        };
        carried.storage.iter().filter_map(stored).collect()
    }

    /// The absolute path, made printable; if it could not be listed, its path at the source.
    fn here(&self, path: &Path) -> String {
        let here = self.request.into.join(path);
        printable(&std::path::absolute(&here).unwrap_or(here))
    }

    /// Reports failures: for each reason the first ones by name, and the number of the others.
    pub(super) fn report_failures(&self, overlay: &Overlay, all: &[FailedItem]) {
        failures::report(
            &*self.events,
            all.iter().filter_map(|failed| {
                let source = overlay.names.get(failed.source as usize)?.clone();
                Some((source, self.here(&failed.path), failed.why.clone()))
            }),
        );
    }
}

/// Converts sets of legs to names.
fn shared(ready: &PreparedCollection, sets: &[SharedSet]) -> Vec<SharedBottleneck> {
    let name = |host: &u32| ready.overlay.names.get(*host as usize).cloned();
    let shared = |set: &SharedSet| SharedBottleneck {
        legs: set.legs.iter().filter_map(|(from, to)| Some((name(from)?, name(to)?))).collect(),
        // In bytes/s, and not negative.
        rate_bps: (set.limit * 8.0) as u64,
    };
    sets.iter().map(shared).collect()
}
