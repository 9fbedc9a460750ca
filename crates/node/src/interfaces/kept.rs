//! What outlives the process: C_demand of applications, bytes of this period.

use crate::mesh::durable;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, io, path::Path};
use thalweg_bond::Applications;
use thalweg_units::WallTime;

/// The longest file that is read: 4096 applications of a few hundred bytes.
const MAX_BYTES: usize = 4 << 20;

/// Interfaces whose bytes are remembered: names of USB devices change.
const MOST_NAMES: usize = 256;

/// The local database of DBAS §II-B, and what was spent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Kept {
    /// What their connections move.
    pub applications: Applications,
    used: BTreeMap<String, Used>,
}

/// Bytes both ways since a period's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Used {
    since: WallTime,
    bytes: u64,
}

impl Kept {
    /// Reads the file; nothing is kept yet if there is none.
    ///
    /// # Errors
    /// The system's, `InvalidData` if it is damaged, `FileTooLarge` beyond 4 MiB. It is left as
    /// it is: a cap that was forgotten costs money.
    pub fn open(file: &Path) -> io::Result<Self> {
        let Some(bytes) = durable::read(file, MAX_BYTES)? else { return Ok(Self::default()) };
        serde_json::from_slice(&bytes).map_err(io::Error::from)
    }

    /// Replaces the file.
    ///
    /// # Errors
    /// The system's; the file is then as it was.
    pub fn save(&self, file: &Path) -> io::Result<()> {
        durable::replace(file, &serde_json::to_vec(self)?)
    }

    /// So many bytes more went by this interface in the period that began then.
    pub(super) fn spend(&mut self, name: &str, bytes: u64, start: WallTime) {
        if self.used.len() >= MOST_NAMES && !self.used.contains_key(name) {
            let oldest = self.used.iter().min_by_key(|(_, used)| used.since);
            if let Some(oldest) = oldest.map(|(name, _)| name.clone()) {
                self.used.remove(&oldest);
            }
        }
        let used = self.used.entry(name.to_owned()).or_insert(Used { since: start, bytes: 0 });
        // A clock that was set back gives nothing back.
        if used.since < start {
            *used = Used { since: start, bytes: 0 };
        }
        used.bytes = used.bytes.saturating_add(bytes);
    }

    /// Bytes by this interface in the period that began then.
    pub(super) fn used(&self, name: &str, start: WallTime) -> u64 {
        let used = self.used.get(name).filter(|used| used.since >= start);
        used.map_or(0, |used| used.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_bond::Application;

    #[test]
    fn what_is_kept_is_read_again_and_damage_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("interfaces.json");
        let mut kept = Kept::open(&file).unwrap();
        assert_eq!(kept, Kept::default());
        let curl = Application { process: Some("curl".into()), port: 443 };
        kept.applications.ended(&curl, 8000);
        let period = WallTime::from_unix_nanos(5);
        kept.spend("lte0", 70, period);
        kept.save(&file).unwrap();
        let mut read = Kept::open(&file).unwrap();
        assert_eq!(read.applications.expected(&curl), 8000);
        assert_eq!(read.used("lte0", period), 70);
        let next = WallTime::from_unix_nanos(9);
        assert_eq!(read.used("lte0", next), 0);
        read.spend("lte0", 1, next);
        assert_eq!((read.used("lte0", next), read.used("lte0", period)), (1, 1));
        std::fs::write(&file, "{\"used\": 1").unwrap();
        assert!(Kept::open(&file).is_err());
    }
}
