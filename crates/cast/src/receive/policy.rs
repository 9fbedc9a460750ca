//! Who may push what, and where it lands.

use super::{home::Home, room};
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

/// The settings cannot be followed.
#[derive(Debug, Error)]
pub enum InboxError {
    /// The directory is not there, or may not be entered.
    #[error("`[cast] inbox` names {}: {source}", path.display())]
    Open {
        /// Which.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// This process may not make anything in it.
    #[error("`[cast] inbox` names {}, and this node may not write there", .0.display())]
    Unwritable(PathBuf),
    /// The node's keys are below it.
    #[error("`[cast] inbox` names {}, and this node's own keys are below it", .0.display())]
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

/// The settings' inboxes.
#[derive(Clone, Debug)]
pub struct Inboxes {
    all: Vec<Inbox>,
    keep_free: u64,
}

impl Inboxes {
    /// All of which must be there; none may hold `state`, the directory with this node's keys.
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

    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// The casts whose directories are in the inboxes.
    pub fn homes(&self) -> Vec<Home> {
        self.all.iter().flat_map(Home::found).collect()
    }

    /// Where this cast may land. `others`: bytes that are still to come of other casts.
    ///
    /// # Errors
    /// Why nowhere.
    pub fn admit(
        &self,
        from: &Member,
        id: CastId,
        offer: &Offer,
        others: impl Fn(&Path) -> u64,
    ) -> Result<Home, Refusal> {
        let its = self.all.iter().filter(|inbox| inbox.from.iter().any(|whom| whom.matches(from)));
        let mut first = Refusal::Policy;
        for inbox in its {
            match self.fits(inbox, offer, others(&inbox.path)) {
                Ok(()) => return Ok(Home::of(inbox, id)),
                Err(why) if first == Refusal::Policy => first = why,
                Err(_) => {}
            }
        }
        Err(first)
    }

    /// Whether an inbox, by the settings of now, takes something of this member's; unfinished casts are
    /// asked again, as settings change. `bytes`: of the object, and what is known of its entries.
    ///
    /// # Errors
    /// Why not.
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
            // It may be the same: that is looked at once it is known what it should be.
            Ok(found) if found.is_dir() || found.is_file() && found.len() == bytes => Ok(()),
            Ok(_) => Err(Refusal::Exists(offer.name.to_string())),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                self.has_room(&inbox.path, bytes.saturating_add(room::beside(offer)), others)
            }
            Err(e) => Err(Refusal::System(e.to_string())),
        }
    }

    /// Whether so many bytes may still come into an inbox. `others`: as for [`Self::admit`].
    ///
    /// # Errors
    /// Why not.
    pub fn has_room(&self, inbox: &Path, bytes: u64, others: u64) -> Result<(), Refusal> {
        let room = self.room(inbox, others)?;
        if bytes > room { Err(Refusal::Full { bytes, room }) } else { Ok(()) }
    }

    /// What may still come into this directory, in bytes.
    fn room(&self, path: &Path, others: u64) -> Result<u64, Refusal> {
        let found = rustix::fs::statvfs(path).map_err(|e| Refusal::System(e.to_string()))?;
        let free = found.f_bavail.saturating_mul(found.f_frsize);
        Ok(free.saturating_sub(self.keep_free).saturating_sub(others))
    }
}
