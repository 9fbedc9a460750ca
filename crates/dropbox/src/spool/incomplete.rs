//! Incomplete data of interrupted pushes: it occupies space until it is resumed or expires.

use crate::files::BoxFiles;
use std::{
    collections::BTreeMap,
    fs, io,
    time::{Duration, SystemTime},
};
use thalweg_wire::bistro::StampId;

/// Incomplete data that is not resumed within this time is deleted.
const ABANDONED: Duration = Duration::from_secs(7 * 24 * 3600);

/// The incomplete data (parts) of submissions without an active push; at most one part for each stamp.
#[derive(Debug, Default)]
pub(super) struct IncompleteData {
    /// The size of each part, and when it was last changed.
    all: BTreeMap<StampId, (u64, SystemTime)>,
    bytes: u64,
}

impl IncompleteData {
    /// Finds the parts in a box's directory, and deletes expired ones.
    ///
    /// # Errors
    /// Returns a system error.
    pub fn find(files: &BoxFiles) -> io::Result<Self> {
        let mut parts = Self::default();
        for entry in fs::read_dir(files.parts())? {
            let entry = entry?;
            let (found, name) = (entry.metadata()?, entry.file_name());
            let since = found.modified()?;
            match name.to_str().and_then(StampId::from_text) {
                _ if is_abandoned(since) => fs::remove_file(entry.path())?,
                Some(id) => parts.insert(id, found.len(), since),
                None => {}
            }
        }
        Ok(parts)
    }

    /// The size of all parts, bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The size of one part, bytes.
    pub fn size_of(&self, id: &StampId) -> u64 {
        self.all.get(id).map_or(0, |(bytes, _)| *bytes)
    }

    /// Records the part that an ended push left behind. A part of 0 bytes is not recorded.
    pub fn insert(&mut self, id: StampId, bytes: u64, since: SystemTime) {
        self.remove(&id);
        if bytes > 0 {
            self.all.insert(id, (bytes, since));
            self.bytes += bytes;
        }
    }

    /// Removes a part from the list because a push resumes it.
    pub fn remove(&mut self, id: &StampId) {
        self.bytes -= self.all.remove(id).map_or(0, |(bytes, _)| bytes);
    }

    /// Deletes expired parts. A part that cannot be deleted still counts towards the used space.
    pub fn remove_expired(&mut self, files: &BoxFiles) {
        let old = self.all.iter().filter(|(_, (_, since))| is_abandoned(*since));
        let old: Vec<StampId> = old.map(|(id, _)| *id).collect();
        for id in old {
            match fs::remove_file(files.part_path(&id)) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => {}
                _ => self.remove(&id),
            }
        }
    }
}

fn is_abandoned(since: SystemTime) -> bool {
    SystemTime::now().duration_since(since).is_ok_and(|age| age > ABANDONED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn expired_parts_are_deleted_when_space_is_needed() {
        let dir = tempfile::tempdir().unwrap();
        let files = BoxFiles::new(dir.path(), &"taxes".parse().unwrap(), None).create().unwrap();
        let id = |n: u8| StampId::from_encoded(&[n]);
        for n in [1, 2] {
            fs::write(files.part_path(&id(n)), [0; 100]).unwrap();
        }
        let mut parts = IncompleteData::find(&files).unwrap();
        assert_eq!((parts.bytes(), parts.size_of(&id(1))), (200, 100));
        let long_ago = SystemTime::now() - ABANDONED - Duration::from_secs(1);
        parts.insert(id(1), 150, long_ago);
        assert_eq!(parts.bytes(), 250);
        parts.remove_expired(&files);
        assert_eq!((parts.bytes(), files.part_path(&id(1)).exists()), (100, false));
        // Expired parts are also deleted at the start of the node.
        File::options()
            .write(true)
            .open(files.part_path(&id(2)))
            .unwrap()
            .set_modified(long_ago)
            .unwrap();
        assert_eq!(IncompleteData::find(&files).unwrap().bytes(), 0);
        assert!(!files.part_path(&id(2)).exists());
    }
}
