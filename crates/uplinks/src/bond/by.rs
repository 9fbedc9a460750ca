//! Which interfaces a bond's links use.

use crate::interfaces::Uplinks;
use std::{collections::BTreeSet, io, sync::Arc};
use thalweg_net::Interface;

/// Lists the interfaces to make links by, given the interfaces (kernel indices) by which nothing is reached. An
/// interface that is listed twice gets two links.
pub type Interfaces = Arc<dyn Fn(&BTreeSet<u32>) -> io::Result<Vec<Interface>> + Send + Sync>;

/// The source of interfaces for links.
#[derive(Clone)]
pub(super) enum By {
    /// Those that the function lists, without accounting.
    These(Interfaces),
    /// Those that the function lists, within caps and limits.
    Counted(Interfaces, Uplinks),
    /// Those that the user allows, within caps and limits.
    Allowed(Uplinks),
}

impl By {
    /// The interfaces to make links by now, given that nothing is reached by those in `fails`.
    ///
    /// # Errors
    /// The interfaces cannot be listed just now.
    pub fn now(&self, fails: &BTreeSet<u32>) -> io::Result<Vec<Interface>> {
        match self {
            Self::These(these) | Self::Counted(these, _) => these(fails),
            Self::Allowed(uplinks) => Ok(uplinks.for_bonds(fails)),
        }
    }

    /// How many there are in all, including those that wait for others to fail.
    pub fn count(&self) -> usize {
        match self {
            Self::These(these) | Self::Counted(these, _) => count(these).unwrap_or_default(),
            Self::Allowed(uplinks) => uplinks.count_for_bonds(),
        }
    }

    /// The table of caps and limits, if links keep to them.
    pub fn uplinks(&self) -> Option<&Uplinks> {
        match self {
            Self::These(_) => None,
            Self::Counted(_, uplinks) | Self::Allowed(uplinks) => Some(uplinks),
        }
    }
}

/// Counts the interfaces, including those that take over when nothing is reached by the first ones.
fn count(these: &Interfaces) -> io::Result<usize> {
    let first = these(&BTreeSet::new())?;
    Ok(these(&first.iter().map(|interface| interface.index.get()).collect())?.len())
}
