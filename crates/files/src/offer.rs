//! The directories that this node offers and accepts files in, and the members that may use them.

use super::root;
use crate::{
    AcceptingDirectory, Settings,
    quota::{Limits, Quota},
};
use std::{
    fs, io,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};
use thalweg_wire::{
    bistro::BOXES,
    mesh::{Member, MemberPattern},
    object::{Failure, Rules},
};
use thiserror::Error;

/// An error in the `[files]` settings.
#[derive(Debug, Error)]
pub enum OfferError {
    /// A directory does not exist or cannot be opened.
    #[error("cannot open {}, which `[files]` names: {source}", path.display())]
    Open {
        /// The directory as configured.
        path: PathBuf,
        source: io::Error,
    },
    /// A directory vanished while the settings were read.
    #[error("a directory of `[files] accept` no longer exists: {0}")]
    Count(#[source] io::Error),
    /// A directory contains the node's keys.
    #[error(
        "`[files]` names {}, which contains this node's own keys in {}; name directories that do not contain them",
        path.display(), state.display()
    )]
    Keys {
        /// The directory as configured.
        path: PathBuf,
        /// The state directory.
        state: PathBuf,
    },
}

/// An offered or accepting directory, with the members that may use it.
#[derive(Clone, Debug)]
pub(super) struct SharedDirectory {
    /// Absolute, without a last `/`; the root is empty.
    pub path: Vec<u8>,
    members: Vec<MemberPattern>,
    pub may: StoreRights,
    /// The bounds on what members may store there.
    pub quota: Arc<Quota>,
}

/// The further rights of members that may store files in a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StoreRights {
    /// Replace existing files.
    pub replace: bool,
    /// Remove existing files and directories.
    pub remove: bool,
    /// Set the owners of files.
    pub owners: bool,
    /// Store symbolic links that point anywhere.
    pub links: bool,
    /// Whether the directory is in an inbox of casts or in a drop box: nothing in it is replaced or removed, whatever
    /// `replace` and `remove` are.
    pub is_protected: bool,
}

impl StoreRights {
    /// Whether existing files are replaced: the sender requests it and the settings allow it.
    pub fn replaces(self, rules: Rules) -> bool {
        rules.has(Rules::REPLACE) && self.replace && !self.is_protected
    }
}

/// All directories of the settings.
#[derive(Clone, Debug, Default)]
pub(super) struct Offers {
    offered: Vec<SharedDirectory>,
    accepting: Vec<SharedDirectory>,
    protected: Vec<PathBuf>,
}

impl Offers {
    /// Opens the directories of the settings. All must exist, and none may contain `state`, the directory with this
    /// node's keys.
    pub fn new(settings: &Settings, state: &Path) -> Result<Self, OfferError> {
        let offered =
            settings.offer.iter().map(|o| SharedDirectory::new(&o.path, &o.members, state, true));
        let accepting = settings.accept.iter().map(|a| {
            let AcceptingDirectory { replace, remove, owners, links, .. } = *a;
            let may = StoreRights { replace, remove, owners, links, is_protected: false };
            let place = SharedDirectory::new(&a.path, &a.members, state, false)?;
            Ok(SharedDirectory { may, ..place })
        });
        let mut accepting = accepting.collect::<Result<Vec<_>, _>>()?;
        let lines = accepting.iter().zip(&settings.accept);
        let lines: Vec<_> = lines.map(|(place, a)| (place.path.clone(), a.limits)).collect();
        let quotas = Quota::open_all(&lines).map_err(OfferError::Count)?;
        for (place, quota) in accepting.iter_mut().zip(quotas) {
            place.quota = Arc::new(quota);
        }
        Ok(Self {
            offered: offered.collect::<Result<_, _>>()?,
            accepting,
            protected: settings.protected.clone(),
        })
    }

    /// Keeps the counts of stored data if the accepting directories and their bounds are the same: data that is being
    /// stored is counted there. Otherwise the directories were counted anew.
    pub fn with_counts_of(mut self, before: &Self) -> Self {
        let bounds =
            |all: &Self| all.accepting.iter().map(SharedDirectory::bounds).collect::<Vec<_>>();
        if bounds(&self) == bounds(before) {
            for (place, old) in self.accepting.iter_mut().zip(&before.accepting) {
                place.quota = Arc::clone(&old.quota);
            }
        }
        self
    }

    /// The numbers of offered and of accepting directories.
    pub fn count(&self) -> (usize, usize) {
        (self.offered.len(), self.accepting.len())
    }

    /// The paths of all offered and accepting directories.
    pub fn paths(&self) -> impl Iterator<Item = &[u8]> {
        self.offered.iter().chain(&self.accepting).map(|place| &place.path[..])
    }

    /// Directories of other services, in which deliveries change nothing.
    pub fn protected(&self) -> &[PathBuf] {
        &self.protected
    }

    /// Returns the offered directory that contains `path`, and the path relative to it.
    ///
    /// # Errors
    /// [`Failure::NotOffered`] if this member may not read there.
    pub fn readable<'a>(
        &'a self,
        member: &Member,
        path: &'a [u8],
    ) -> Result<(&'a SharedDirectory, &'a [u8]), Failure> {
        innermost(&self.offered, member, path)
    }

    /// Returns the accepting directory that contains `path`, and the path relative to it.
    ///
    /// # Errors
    /// [`Failure::NotOffered`] if this member may not write there.
    pub fn writable<'a>(
        &'a self,
        member: &Member,
        path: &'a [u8],
    ) -> Result<(&'a SharedDirectory, &'a [u8]), Failure> {
        innermost(&self.accepting, member, path)
    }
}

/// Returns the innermost directory that contains `path` and that this member may use. A directory without rights for
/// this member gives the same error as one that is not offered.
fn innermost<'a>(
    places: &'a [SharedDirectory],
    member: &Member,
    path: &'a [u8],
) -> Result<(&'a SharedDirectory, &'a [u8]), Failure> {
    let usable =
        places.iter().filter(|place| place.members.iter().any(|pattern| pattern.matches(member)));
    let holding = usable.filter_map(|place| Some((place, below(&place.path, path)?)));
    let innermost = holding.max_by_key(|(place, _)| place.path.len());
    let is_sound = |rest: &[u8]| thalweg_wire::object::FilePath::new(rest.to_vec()).is_ok();
    let innermost = innermost.filter(|(_, rest)| is_sound(rest));
    innermost.ok_or_else(|| Failure::NotOffered(root::display_path(path)))
}

/// Returns `path` relative to `above`; `None` if it is neither `above` nor below it.
fn below<'a>(above: &[u8], path: &'a [u8]) -> Option<&'a [u8]> {
    match path.strip_prefix(above)? {
        [] => Some(&[]),
        [b'/', rest @ ..] => Some(rest),
        _ => None,
    }
}

impl SharedDirectory {
    fn bounds(&self) -> (Vec<u8>, Limits) {
        (self.path.clone(), self.quota.limits())
    }

    /// With `may_be_box` the directory may be in the data of drop boxes, which is below `state` and may be read.
    fn new(
        path: &Path,
        members: &[MemberPattern],
        state: &Path,
        may_be_box: bool,
    ) -> Result<Self, OfferError> {
        let failed = |source| OfferError::Open { path: path.to_owned(), source };
        let real = fs::canonicalize(path).map_err(failed)?;
        if !real.is_dir() {
            return Err(failed(io::ErrorKind::NotADirectory.into()));
        }
        // A missing state directory contains no keys.
        let keys = fs::canonicalize(state).unwrap_or_else(|_| state.to_owned());
        let is_box = may_be_box && real.starts_with(keys.join(BOXES));
        if keys.starts_with(&real) || (real.starts_with(&keys) && !is_box) {
            return Err(OfferError::Keys { path: path.to_owned(), state: state.to_owned() });
        }
        let path: PathBuf = path.components().collect();
        let bytes = path.as_os_str().as_bytes();
        let bytes = bytes.strip_suffix(b"/").unwrap_or(bytes);
        let quota = Arc::new(Quota::new(bytes.to_vec(), Limits::default()));
        Ok(Self {
            path: bytes.to_vec(),
            members: members.to_vec(),
            may: StoreRights::default(),
            quota,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_below_another_only_by_whole_components() {
        let below = |above: &str, path: &'static str| below(above.as_bytes(), path.as_bytes());
        assert_eq!(below("/data", "/data"), Some(&b""[..]));
        assert_eq!(below("/data", "/data/a/b"), Some(&b"a/b"[..]));
        assert_eq!(below("", "/etc"), Some(&b"etc"[..]));
        assert_eq!(below("/data", "/database"), None);
        assert_eq!(below("/data", "data"), None);
    }
}
