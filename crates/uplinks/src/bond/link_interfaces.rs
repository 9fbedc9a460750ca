//! Which interfaces a bond's links use.

use crate::interfaces::Uplinks;
use std::{collections::BTreeSet, io, sync::Arc};
use thalweg_net::Interface;

/// Lists the interfaces to make links by, given the interfaces (kernel indices) by which nothing is reached. An
/// interface that is listed twice gets two links.
pub type InterfaceLister = Arc<dyn Fn(&BTreeSet<u32>) -> io::Result<Vec<Interface>> + Send + Sync>;

/// The source of interfaces for links.
#[derive(Clone)]
pub(super) enum LinkInterfaces {
    /// Those that the function lists, without accounting.
    Listed(InterfaceLister),
    /// Those that the function lists, within caps and limits.
    ListedWithCaps(InterfaceLister, Uplinks),
    /// Those that the user allows, within caps and limits.
    Allowed(Uplinks),
}

impl LinkInterfaces {
    /// The interfaces to make links by now, given that nothing is reached by those in `fails`.
    ///
    /// # Errors
    /// The interfaces cannot be listed just now.
    pub fn list(&self, fails: &BTreeSet<u32>) -> io::Result<Vec<Interface>> {
        match self {
            Self::Listed(these) | Self::ListedWithCaps(these, _) => these(fails),
            Self::Allowed(uplinks) => Ok(uplinks.bond_interfaces(fails)),
        }
    }

    /// How many there are in all, including those that wait for others to fail.
    pub fn count(&self) -> usize {
        match self {
            Self::Listed(these) | Self::ListedWithCaps(these, _) => {
                count(these).unwrap_or_default()
            }
            Self::Allowed(uplinks) => uplinks.count_bond_interfaces(),
        }
    }

    /// The table of caps and limits, if links keep to them.
    pub fn uplinks(&self) -> Option<&Uplinks> {
        match self {
            Self::Listed(_) => None,
            Self::ListedWithCaps(_, uplinks) | Self::Allowed(uplinks) => Some(uplinks),
        }
    }
}

/// Counts the interfaces, including those that take over when nothing is reached by the first ones.
fn count(these: &InterfaceLister) -> io::Result<usize> {
    let first = these(&BTreeSet::new())?;
    Ok(these(&first.iter().map(|interface| interface.index.get()).collect())?.len())
}
