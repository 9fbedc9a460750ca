//! Best paths without a host between: all of a source's data over one connection.

use std::collections::{BTreeMap, BTreeSet};
use thalweg_plan::collection::Timetable;

/// The first parcels of such paths, which carry all of it, and those that it is taken from.
///
/// The non-coordinated method chooses a host's best path to "send all of its data along this path"
/// (§III, "Remark"): where nobody stands between, parcels would only make it wait.
#[derive(Debug, Default)]
pub struct Single {
    /// By the first parcel: data units of all.
    units: BTreeMap<usize, u64>,
    absorbed: BTreeSet<usize>,
}

impl Single {
    /// Those of a timetable of best paths.
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

    /// Data units of a path that carries all.
    pub fn units(&self, path: usize) -> Option<u64> {
        self.units.get(&path).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_plan::collection::TimedPath;

    #[test]
    fn the_first_parcel_of_a_direct_path_carries_them_all() {
        let path = |source, start, via: &[u32]| TimedPath {
            source,
            start,
            via: via.into(),
            units: u64::from(start) + 1,
        };
        let paths =
            vec![path(0, 0, &[3]), path(1, 0, &[2, 3]), path(0, 1, &[3]), path(1, 1, &[2, 3])];
        let single = Single::of_direct(&Timetable { slots: 3, paths });
        assert_eq!((single.units(0), single.units(1), single.units(2)), (Some(3), None, None));
        assert_eq!(single.absorbed().collect::<Vec<_>>(), [2]);
    }
}
