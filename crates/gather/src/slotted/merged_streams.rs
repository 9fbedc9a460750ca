//! Best paths without an intermediate: one connection carries all of a source's data.

use std::collections::{BTreeMap, BTreeSet};
use thalweg_plan::collection::Timetable;

/// Merges the parcels of each such path into the first one.
///
/// The non-coordinated method chooses a host's best path to "send all of its data along this path" (§III, "Remark").
/// Without an intermediate, further parcels would only cause waiting.
#[derive(Debug, Default)]
pub struct MergedStreams {
    /// Data units of the whole path, by its first parcel.
    units: BTreeMap<usize, u64>,
    absorbed: BTreeSet<usize>,
}

impl MergedStreams {
    /// Merges the parcels of the direct paths in a timetable of best paths.
    pub fn of_direct(timetable: &Timetable) -> Self {
        let mut single = Self::default();
        let mut first = BTreeMap::new();
        for (index, path) in timetable.paths.iter().enumerate().filter(|(_, p)| p.via.len() == 1) {
            let carries = *first.entry(path.source).or_insert(index);
            *single.units.entry(carries).or_default() += path.units;
            if carries != index {
                single.absorbed.insert(index);
            }
        }
        single
    }

    /// Paths whose data another one carries.
    pub fn absorbed(&self) -> impl Iterator<Item = usize> {
        self.absorbed.iter().copied()
    }

    /// Data units of a path that carries all data of its source.
    pub fn units(&self, path: usize) -> Option<u64> {
        self.units.get(&path).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_plan::collection::TimedPath;

    #[test]
    fn the_first_parcel_of_a_direct_path_carries_all_data() {
        let path = |source, start, via: &[u32]| TimedPath {
            source,
            start,
            via: via.into(),
            units: u64::from(start) + 1,
        };
        let paths =
            vec![path(0, 0, &[3]), path(1, 0, &[2, 3]), path(0, 1, &[3]), path(1, 1, &[2, 3])];
        let single = MergedStreams::of_direct(&Timetable { slots: 3, paths });
        assert_eq!((single.units(0), single.units(1), single.units(2)), (Some(3), None, None));
        assert_eq!(single.absorbed().collect::<Vec<_>>(), [2]);
    }
}
