//! Decides which members may cast what to this node, and into which inbox.

use super::{cast_directory::CastDirectory, disk_space};
use crate::{Inbox, Settings};
use std::{
    io,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};
use thalweg_wire::{
    cast::{CastId, Offer, Refusal},
    mesh::Member,
};
use thiserror::Error;

/// Settings that cannot be used.
#[derive(Debug, Error)]
pub enum InboxError {
    /// The directory does not exist or cannot be entered.
    #[error("cannot use {} as `[cast] inbox`: {source}", path.display())]
    Open { path: PathBuf, source: io::Error },
    /// This process may not create files in the directory.
    #[error(
        "cannot use {} as `[cast] inbox`: this node may not write there; change the permissions of the \
         directory, or set another one",
        .0.display()
    )]
    Unwritable(PathBuf),
    /// The node's keys are below the directory.
    #[error(
        "cannot use {} as `[cast] inbox`: it contains the keys of this node, or lies in the directory \
         that contains them; set another directory",
        .0.display()
    )]
    Keys(PathBuf),
}

fn is_small_enough(inbox: &Inbox, bytes: u64) -> Result<(), Refusal> {
    match inbox.max_bytes.map(|most| most.as_bytes()).filter(|most| bytes > *most) {
        Some(most) => Err(Refusal::TooLarge { bytes, most }),
        None => Ok(()),
    }
}

fn may_write(path: &Path) -> bool {
    use rustix::fs::Access;
    rustix::fs::access(path, Access::WRITE_OK | Access::EXEC_OK).is_ok()
}

/// The inboxes in the settings.
#[derive(Clone, Debug)]
pub struct Inboxes {
    all: Vec<Inbox>,
    keep_free: u64,
}

impl Inboxes {
    /// Checks that all inboxes exist, and that none contains `state`, the directory with this node's keys.
    ///
    /// # Errors
    /// [`InboxError`].
    pub fn new(settings: &Settings, state: &Path) -> Result<Self, InboxError> {
        let keys = std::fs::canonicalize(state).unwrap_or_else(|_| state.to_owned());
        for inbox in &settings.inbox {
            let path = inbox.path.clone();
            let real = std::fs::canonicalize(&path).and_then(|real| match real.is_dir() {
                true => Ok(real),
                false => Err(io::ErrorKind::NotADirectory.into()),
            });
            match real {
                Err(source) => return Err(InboxError::Open { path, source }),
                Ok(_) if !may_write(&path) => return Err(InboxError::Unwritable(path)),
                Ok(real) if keys.starts_with(&real) || real.starts_with(&keys) => {
                    return Err(InboxError::Keys(path));
                }
                Ok(_) => {}
            }
        }
        Ok(Self { all: settings.inbox.clone(), keep_free: settings.keep_free.as_bytes() })
    }

    /// The number of inboxes.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// The casts whose directories are in the inboxes.
    pub fn homes(&self) -> Vec<CastDirectory> {
        self.all.iter().flat_map(CastDirectory::list).collect()
    }

    /// Chooses the inbox of a cast. `others`: bytes that other casts in an inbox still lack.
    ///
    /// # Errors
    /// Why no inbox accepts the cast.
    pub fn admit(
        &self,
        from: &Member,
        id: CastId,
        offer: &Offer,
        others: impl Fn(&Path) -> u64,
    ) -> Result<CastDirectory, Refusal> {
        let its = self.all.iter().filter(|inbox| inbox.from.iter().any(|whom| whom.matches(from)));
        let mut first = Refusal::Policy;
        for inbox in its {
            match self.fits(inbox, offer, others(&inbox.path)) {
                Ok(()) => return Ok(CastDirectory::new(inbox, id)),
                Err(why) if first == Refusal::Policy => first = why,
                Err(_) => {}
            }
        }
        Err(first)
    }

    /// Whether an inbox accepts a cast of this member by the current settings. Incomplete casts are checked again,
    /// because settings change. `bytes` is the size of the object and its known entries.
    ///
    /// # Errors
    /// The reason for a refusal.
    pub fn takes(&self, inbox: &Path, from: &Member, bytes: u64) -> Result<(), Refusal> {
        let its = self.all.iter().filter(|one| one.path == inbox);
        let mut its = its.filter(|inbox| inbox.from.iter().any(|whom| whom.matches(from)));
        its.next().ok_or(Refusal::Policy).and_then(|inbox| is_small_enough(inbox, bytes))
    }

    fn fits(&self, inbox: &Inbox, offer: &Offer, others: u64) -> Result<(), Refusal> {
        let bytes = offer.length;
        is_small_enough(inbox, bytes)?;
        let name = std::ffi::OsStr::from_bytes(offer.name.as_bytes());
        match inbox.path.join(name).symlink_metadata() {
            // The content may be the same; that is checked once digests are known.
            Ok(found) if found.is_dir() || found.is_file() && found.len() == bytes => Ok(()),
            Ok(_) => Err(Refusal::Exists(offer.name.to_string())),
            Err(e) if e.kind() == io::ErrorKind::NotFound => self.has_room(
                &inbox.path,
                bytes.saturating_add(disk_space::overhead(offer)),
                others,
            ),
            Err(e) => Err(Refusal::System(e.to_string())),
        }
    }

    /// Whether `bytes` more fit into an inbox. `others`: as for [`Self::admit`].
    ///
    /// # Errors
    /// The reason for a refusal.
    pub fn has_room(&self, inbox: &Path, bytes: u64, others: u64) -> Result<(), Refusal> {
        let room = self.room(inbox, others)?;
        if bytes > room { Err(Refusal::Full { bytes, room }) } else { Ok(()) }
    }

    /// The number of bytes that may still be stored in this directory.
    fn room(&self, path: &Path, others: u64) -> Result<u64, Refusal> {
        let found = rustix::fs::statvfs(path).map_err(|e| Refusal::System(e.to_string()))?;
        let free = found.f_bavail.saturating_mul(found.f_frsize);
        Ok(free.saturating_sub(self.keep_free).saturating_sub(others))
    }
}
