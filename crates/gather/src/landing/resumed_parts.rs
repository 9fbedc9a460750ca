//! Large files that an earlier session began.

use super::{
    plan::{Target, TreePlan},
    step_error::{error_text, part_error_text},
    survey::TargetAction,
    tree::{DirectoryCache, OpenDirectory, Tree, make_way},
};
use std::{ops::Range, sync::Arc};
use thalweg_base::job::Job;
use thalweg_part::{Batch, CompletePart, ParkedPart, Part, PartError};

/// The verified existing data of large files.
#[derive(Default)]
pub(super) struct ResumedData {
    /// Missing ranges, by target, of those to fetch.
    pub(super) missing: Vec<Vec<Range<u64>>>,
    pub(super) parked: Vec<(u32, ParkedPart)>,
    /// Files that were complete but had not received their names when a session was cut off.
    pub(super) whole: Vec<(u32, CompletePart, Arc<OpenDirectory>)>,
    pub(super) refused: Vec<(u32, String)>,
    /// Bytes that need not be fetched again.
    pub(super) resumed: u64,
}

/// Opens parts.
pub(super) struct Opener<'a> {
    pub(super) plan: &'a TreePlan,
    pub(super) job: &'a Job,
    pub(super) checkpoint: Batch,
}

impl Opener<'_> {
    /// Opens the part of a large target in its directory.
    pub(super) fn open(&self, hold: &OpenDirectory, target: &Target) -> Result<Part, PartError> {
        let path = hold.path(&target.name);
        let Some(key) = self.plan.key(target) else {
            return Err(PartError::NotAFile { path, what: "not a file" });
        };
        make_way(hold, &target.name);
        let (attributes, holes) = (Some(target.attributes), target.holes().map(<[_]>::to_vec));
        Part::open_sparse(&path, key, self.job.clone(), self.checkpoint, attributes, holes)
    }

    /// Opens the parts of the first `fetched` targets that an earlier session began.
    pub(super) fn resume(
        &self,
        tree: &Tree,
        actions: &[TargetAction],
        fetched: usize,
    ) -> ResumedData {
        let mut begun = ResumedData::default();
        let mut holds = DirectoryCache::new(tree);
        for (number, target) in (0..).zip(&self.plan.targets).take(fetched) {
            let going_on =
                matches!(actions.get(number as usize), Some(TargetAction::Resume { .. }));
            let data = target.data();
            let is_hole = data.is_empty();
            let missing = match going_on || is_hole {
                false => Ok(data),
                true => self.take_over(&mut begun, &mut holds, number, target),
            };
            begun.missing.push(missing.unwrap_or_else(|why| {
                begun.refused.push((number, why));
                Vec::new()
            }));
        }
        begun
    }

    fn take_over(
        &self,
        begun: &mut ResumedData,
        holds: &mut DirectoryCache,
        number: u32,
        target: &Target,
    ) -> Result<Vec<Range<u64>>, String> {
        let hold = holds.get(self.plan, target.directory);
        let hold = hold.map_err(|e| error_text("open the directory of", e))?;
        let part = self.open(&hold, target).map_err(|e| part_error_text(&e))?;
        begun.resumed += part.resumed();
        let missing = part.missing();
        if missing.is_empty() {
            let whole = part.complete(target.size()).map_err(|e| part_error_text(&e))?;
            begun.whole.push((number, whole, hold));
        } else {
            begun.parked.push((number, part.park().map_err(|e| part_error_text(&e))?));
        }
        Ok(missing)
    }
}
