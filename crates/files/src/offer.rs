//! What is offered, and to whom.

use super::beneath;
use crate::{
    AcceptPlace, Settings,
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

/// The settings cannot be served.
#[derive(Debug, Error)]
pub enum OfferError {
    /// The directory is not there, or may not be entered.
    #[error("`[files]` names {}: {source}", path.display())]
    Open {
        /// Which.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A directory vanished while the settings were read.
    #[error("a directory of `[files] accept` is gone: {0}")]
    Count(#[source] io::Error),
    /// The node's keys are below it.
    #[error(
        "`[files]` names {}, and this node's own keys are below it in {}; name directories beside",
        path.display(), state.display()
    )]
    Keys {
        /// Which.
        path: PathBuf,
        /// The state directory.
        state: PathBuf,
    },
}

/// A directory with those who may use it.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// Absolute, without a last `/`; the root is empty.
    pub path: Vec<u8>,
    whom: Vec<MemberPattern>,
    pub may: May,
    /// The bounds on what members may store there.
    pub quota: Arc<Quota>,
}

/// What else those may do who may leave files in a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct May {
    /// Replace files that are there.
    pub replace: bool,
    /// Remove what is there.
    pub remove: bool,
    /// Set the owners of files.
    pub owners: bool,
    /// Store symbolic links that point anywhere.
    pub links: bool,
    /// In an inbox of casts or a directory of a drop box: nothing is replaced or removed there, whatever `replace` and
    /// `remove` are.
    pub is_protected: bool,
}

impl May {
    /// Whether something is replaced there if the sender asks for it.
    pub fn replaces(self, rules: Rules) -> bool {
        rules.has(Rules::REPLACE) && self.replace && !self.is_protected
    }
}

/// All of the settings.
#[derive(Clone, Debug, Default)]
pub(super) struct Offers {
    offered: Vec<Place>,
    accepting: Vec<Place>,
    protected: Vec<PathBuf>,
}

impl Offers {
    /// The settings' directories, all of which must be there; none may hold `state`, the
    /// directory with this node's keys.
    pub fn new(settings: &Settings, state: &Path) -> Result<Self, OfferError> {
        let offered = settings.offer.iter().map(|o| Place::new(&o.path, &o.members, state, true));
        let accepting = settings.accept.iter().map(|a| {
            let AcceptPlace { replace, remove, owners, links, .. } = *a;
            let may = May { replace, remove, owners, links, is_protected: false };
            let place = Place::new(&a.path, &a.members, state, false)?;
            Ok(Place { may, ..place })
        });
        let mut accepting = accepting.collect::<Result<Vec<_>, _>>()?;
        let lines = accepting.iter().zip(&settings.accept);
        let lines: Vec<_> = lines.map(|(place, a)| (place.path.clone(), a.limits)).collect();
        let quotas = Quota::of_all(&lines).map_err(OfferError::Count)?;
        for (place, quota) in accepting.iter_mut().zip(quotas) {
            place.quota = Arc::new(quota);
        }
        Ok(Self {
            offered: offered.collect::<Result<_, _>>()?,
            accepting,
            protected: settings.protected.clone(),
        })
    }

    /// How many directories are offered and accept files.
    pub fn count(&self) -> (usize, usize) {
        (self.offered.len(), self.accepting.len())
    }

    /// The paths of all offered and accepting directories.
    pub fn paths(&self) -> impl Iterator<Item = &[u8]> {
        self.offered.iter().chain(&self.accepting).map(|place| &place.path[..])
    }

    /// Directories of other services.
    pub fn protected(&self) -> &[PathBuf] {
        &self.protected
    }

    /// The offered directory that `path` is in or below, as far as this member may read there,
    /// and the path below that.
    pub fn readable<'a>(
        &'a self,
        member: &Member,
        path: &'a [u8],
    ) -> Result<(&'a Place, &'a [u8]), Failure> {
        innermost(&self.offered, member, path)
    }

    /// The same where it may write.
    pub fn writable<'a>(
        &'a self,
        member: &Member,
        path: &'a [u8],
    ) -> Result<(&'a Place, &'a [u8]), Failure> {
        innermost(&self.accepting, member, path)
    }
}

/// What is not for this member looks as if it were not offered at all.
fn innermost<'a>(
    places: &'a [Place],
    member: &Member,
    path: &'a [u8],
) -> Result<(&'a Place, &'a [u8]), Failure> {
    let its = places.iter().filter(|place| place.whom.iter().any(|whom| whom.matches(member)));
    let holding = its.filter_map(|place| Some((place, below(&place.path, path)?)));
    let innermost = holding.max_by_key(|(place, _)| place.path.len());
    let is_sound = |rest: &[u8]| thalweg_wire::object::FilePath::new(rest.to_vec()).is_ok();
    let innermost = innermost.filter(|(_, rest)| is_sound(rest));
    innermost.ok_or_else(|| Failure::NotOffered(beneath::shown(path)))
}

/// `path` relative to `above`, if it is that or below.
fn below<'a>(above: &[u8], path: &'a [u8]) -> Option<&'a [u8]> {
    match path.strip_prefix(above)? {
        [] => Some(&[]),
        [b'/', rest @ ..] => Some(rest),
        _ => None,
    }
}

impl Place {
    /// `may_be_box`: the data of drop boxes is below `state`, and may be read.
    fn new(
        path: &Path,
        whom: &[MemberPattern],
        state: &Path,
        may_be_box: bool,
    ) -> Result<Self, OfferError> {
        let failed = |source| OfferError::Open { path: path.to_owned(), source };
        let real = fs::canonicalize(path).map_err(failed)?;
        if !real.is_dir() {
            return Err(failed(io::ErrorKind::NotADirectory.into()));
        }
        // A state directory that is not there holds no keys.
        let keys = fs::canonicalize(state).unwrap_or_else(|_| state.to_owned());
        let is_box = may_be_box && real.starts_with(keys.join(BOXES));
        if keys.starts_with(&real) || (real.starts_with(&keys) && !is_box) {
            return Err(OfferError::Keys { path: path.to_owned(), state: state.to_owned() });
        }
        let path: PathBuf = path.components().collect();
        let bytes = path.as_os_str().as_bytes();
        let bytes = bytes.strip_suffix(b"/").unwrap_or(bytes);
        let quota = Arc::new(Quota::new(bytes.to_vec(), Limits::default()));
        Ok(Self { path: bytes.to_vec(), whom: whom.to_vec(), may: May::default(), quota })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_below_by_whole_parts_alone() {
        let below = |above: &str, path: &'static str| below(above.as_bytes(), path.as_bytes());
        assert_eq!(below("/data", "/data"), Some(&b""[..]));
        assert_eq!(below("/data", "/data/a/b"), Some(&b"a/b"[..]));
        assert_eq!(below("", "/etc"), Some(&b"etc"[..]));
        assert_eq!(below("/data", "/database"), None);
        assert_eq!(below("/data", "data"), None);
    }
}
