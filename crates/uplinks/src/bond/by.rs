//! By which interfaces a bond's links are made.

use crate::interfaces::Uplinks;
use std::{collections::BTreeSet, io, sync::Arc};
use thalweg_net::Interface;

/// Who says by which interfaces there are to be links, where nothing is reached by some (the kernel's indices); one that is listed twice has two.
pub type Interfaces = Arc<dyn Fn(&BTreeSet<u32>) -> io::Result<Vec<Interface>> + Send + Sync>;

/// Which interfaces there are for links.
#[derive(Clone)]
pub(super) enum By {
    /// All of these, at any time.
    These(Interfaces),
    /// The same, within caps and limits.
    Counted(Interfaces, Uplinks),
    /// As the user allows, within caps and limits.
    Allowed(Uplinks),
}

impl By {
    /// Those by which there are to be links now, where nothing is reached by those of `fails`.
    ///
    /// # Errors
    /// They cannot be listed just now.
    pub fn now(&self, fails: &BTreeSet<u32>) -> io::Result<Vec<Interface>> {
        match self {
            Self::These(these) | Self::Counted(these, _) => these(fails),
            Self::Allowed(uplinks) => Ok(uplinks.for_bonds(fails)),
        }
    }

    /// How many there are in all, also of those that wait for others to fail.
    pub fn count(&self) -> usize {
        match self {
            Self::These(these) | Self::Counted(these, _) => count(these).unwrap_or_default(),
            Self::Allowed(uplinks) => uplinks.count_for_bonds(),
        }
    }

    /// Who knows what is allowed, where that is looked after.
    pub fn uplinks(&self) -> Option<&Uplinks> {
        match self {
            Self::These(_) => None,
            Self::Counted(_, uplinks) | Self::Allowed(uplinks) => Some(uplinks),
        }
    }
}

/// With those that take over when nothing is reached by the first.
fn count(these: &Interfaces) -> io::Result<usize> {
    let first = these(&BTreeSet::new())?;
    Ok(these(&first.iter().map(|interface| interface.index.get()).collect())?.len())
}
