//! A dumbbell: two groups of hosts that share one bottleneck.

use super::{Generated, access_name, check_count, downstream_link, pairs, upstream_link};
use crate::topology::{LinkSpec, TopologyError};
use serde::{Deserialize, Serialize};

/// `kind = "dumbbell"`: hosts `l1` … and `r1` …; every path between the groups uses `bottleneck`, whose forward
/// direction is from left to right.
///
/// With `access`, every host has a link `NAME.access` (forward is from the host) on all its paths.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dumbbell {
    /// Number of hosts on the left.
    pub left: usize,
    /// Number of hosts on the right.
    pub right: usize,
    /// Every host's link; absent: hosts are directly at the bottleneck.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access: Option<LinkSpec>,
    /// The shared link.
    pub bottleneck: LinkSpec,
}

impl Dumbbell {
    pub(super) fn expand(&self) -> Result<Generated, TopologyError> {
        check_count("left", self.left)?;
        check_count("right", self.right)?;
        let left = (1..=self.left).map(|i| format!("l{i}"));
        let names: Vec<_> = left.chain((1..=self.right).map(|i| format!("r{i}"))).collect();
        let mut out = Generated::default();
        out.link("bottleneck".to_owned(), &self.bottleneck);
        for name in &names {
            out.host(name);
            if let Some(access) = &self.access {
                out.link(access_name(name), access);
            }
        }
        for (a, b) in pairs(&names) {
            out.path(a, b, self.route(a, b));
        }
        Ok(out)
    }

    /// The links from `a` to `b`. `a` comes before `b`, so that only paths from left to right cross the bottleneck.
    fn route(&self, a: &str, b: &str) -> Vec<String> {
        let crosses = a.starts_with('l') && b.starts_with('r');
        let (first, last) = match self.access {
            Some(_) => (Some(upstream_link(a)), Some(downstream_link(b))),
            None => (None, None),
        };
        let middle = crosses.then(|| "bottleneck".to_owned());
        [first, middle, last].into_iter().flatten().collect()
    }
}
