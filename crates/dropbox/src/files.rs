//! The files of a box in the node's state directory.
//!
//! ```text
//! commitments   at the destination: its key, then stamps                  (a journal)
//! struck        at the destination: struck submissions and keys           (a journal)
//! receipts      at the destination: the nodes' receipts                   (a journal)
//! collected     at the destination: collected submissions, by `collect`   (a journal)
//! collecting    locked while `collect` runs
//! held          at a node that takes data: stored, reported and deleted submissions (a journal)
//! data/ab/ab…   the data, by the ids of its stamps
//! part/ab…      incomplete data
//! ```

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};
use thalweg_wire::bistro::BOXES;
use thalweg_wire::{bistro::StampId, mesh::Name};

/// The directory of one box; cheap to clone.
#[derive(Clone, Debug)]
pub struct BoxFiles {
    dir: PathBuf,
    data: PathBuf,
}

impl BoxFiles {
    /// Creates the paths of the box `name` in this state directory; its data is in `data` if the settings give it.
    pub fn new(state: &Path, name: &Name, data: Option<&Path>) -> Self {
        let dir = state.join(BOXES).join(name.as_str());
        let data = data.map_or_else(|| dir.join("data"), Path::to_owned);
        Self { dir, data }
    }

    /// Creates missing directories with access for this user only. The data path becomes free of symbolic links,
    /// because other nodes request it in that form.
    pub(super) fn create(self) -> io::Result<Self> {
        for dir in [&self.dir, &self.data, &self.parts()] {
            DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        }
        Ok(Self { data: fs::canonicalize(&self.data)?, ..self })
    }

    pub(super) fn commitments(&self) -> PathBuf {
        self.dir.join("commitments")
    }

    pub(super) fn struck(&self) -> PathBuf {
        self.dir.join("struck")
    }

    pub(super) fn receipts(&self) -> PathBuf {
        self.dir.join("receipts")
    }

    pub(super) fn collected(&self) -> PathBuf {
        self.dir.join("collected")
    }

    /// Locked by a running collection.
    pub(super) fn collecting(&self) -> PathBuf {
        self.dir.join("collecting")
    }

    pub(super) fn held(&self) -> PathBuf {
        self.dir.join("held")
    }

    /// The directory of the data.
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// The directory of incomplete data, on the filesystem of the data.
    pub(super) fn parts(&self) -> PathBuf {
        self.data.join("part")
    }

    /// The path of a submission's complete data.
    pub(super) fn data_path(&self, id: &StampId) -> PathBuf {
        let text = id.text();
        self.data.join(&text[..2]).join(text)
    }

    /// The path of a submission's incomplete data.
    pub(super) fn part_path(&self, id: &StampId) -> PathBuf {
        self.parts().join(id.text())
    }

    /// Renames complete data to its final name, which becomes durable with the next sync of the filesystem.
    pub(super) fn complete(&self, id: &StampId) -> io::Result<()> {
        let (part, whole) = (self.part_path(id), self.data_path(id));
        match fs::rename(&part, &whole) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let shard = whole.parent().unwrap_or(&self.data);
                DirBuilder::new().recursive(true).mode(0o700).create(shard)?;
                fs::rename(&part, &whole)
            }
            done => done,
        }
    }
}
