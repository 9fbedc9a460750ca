//! A star: every host has its own access link to an unlimited core.

use super::{Generated, Hosts, access_name, downstream_link, pairs, upstream_link};
use crate::topology::{LinkSpec, TopologyError};
use serde::{Deserialize, Serialize};

/// `kind = "star"`: a path is the sender's access link upstream and the receiver's downstream.
///
/// The links are `NAME.access`; forward is upstream (from the host), reverse is downstream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Star {
    /// A number (`h1`, `h2` …) or names.
    pub hosts: Hosts,
    /// Every host's link.
    pub access: LinkSpec,
}

impl Star {
    pub(super) fn expand(&self) -> Result<Generated, TopologyError> {
        let names = self.hosts.names()?;
        let mut out = Generated::default();
        for name in &names {
            out.host(name);
            out.link(access_name(name), &self.access);
        }
        for (a, b) in pairs(&names) {
            out.path(a, b, vec![upstream_link(a), downstream_link(b)]);
        }
        Ok(out)
    }
}
