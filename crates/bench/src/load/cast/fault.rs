//! Faults that are caused in a cast while it runs.

use super::mesh::CastMesh;
use anyhow::{Context as _, bail, ensure};
use std::str::FromStr;
use thalweg_lab::{client::Lab, topology::LinkChange};
use thalweg_units::Rate;

/// A fault that is caused once a receiver has a share of the object: `kill=b@0.3:c` kills the node of b when c has 30
/// %; `start=c@0.5:b` starts the node of c; `rate=b.access.fwd/1Mbit/s@0.3:c` changes a link's rate. `PARENT` in the
/// name of a node or a link stands for the parent that gives c most at that time.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedFault {
    /// The kind of fault and its target.
    pub what: FaultAction,
    /// The share of the object, 0 to 1.
    pub share: f64,
    /// The receiver that has this share.
    pub of: String,
}

/// The kind of a fault and its target.
#[derive(Clone, Debug, PartialEq)]
pub enum FaultAction {
    /// Kills a node.
    Kill(String),
    /// Starts a node.
    Start(String),
    /// Changes the rate of a link or of half a link.
    Rate(String, Rate),
}

impl FromStr for PlannedFault {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let form = "a fault must have the form `kill=NODE@SHARE:RECEIVER`, `start=…` or `rate=LINK/RATE@…`";
        let (what, when) = text.split_once('@').context(form)?;
        let (kind, target) = what.split_once('=').context(form)?;
        let (share, of) = when.split_once(':').context(form)?;
        let share: f64 = share.parse().with_context(|| format!("`{share}` is not a share"))?;
        ensure!((0.0..=1.0).contains(&share), "a share must be from 0 to 1");
        let what = match kind {
            "kill" => FaultAction::Kill(target.to_owned()),
            "start" => FaultAction::Start(target.to_owned()),
            "rate" => {
                let (link, rate) = target.split_once('/').context(form)?;
                FaultAction::Rate(link.to_owned(), rate.parse()?)
            }
            _ => bail!(form),
        };
        Ok(Self { what, share, of: of.to_owned() })
    }
}

/// Placeholder for the receiver's parent.
const PARENT: &str = "PARENT";

impl PlannedFault {
    /// The same fault with the parent's name filled in.
    pub fn resolved(&self, parent: Option<&str>) -> Self {
        let with = |name: &str| name.replace(PARENT, parent.unwrap_or(PARENT));
        let what = match &self.what {
            FaultAction::Kill(node) => FaultAction::Kill(with(node)),
            FaultAction::Start(node) => FaultAction::Start(with(node)),
            FaultAction::Rate(link, rate) => FaultAction::Rate(with(link), *rate),
        };
        Self { what, ..self.clone() }
    }

    /// Causes the fault.
    ///
    /// # Errors
    /// When the node or the link does not exist.
    pub fn cause(&self, mesh: &mut CastMesh<'_>, lab: &Lab) -> anyhow::Result<()> {
        match &self.what {
            FaultAction::Kill(node) => mesh.kill(node),
            FaultAction::Start(node) => mesh.start(std::slice::from_ref(node)),
            FaultAction::Rate(link, rate) => Ok(lab.set(link, &LinkChange::rate(*rate))?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_parsed() {
        let fault = |text: &str| text.parse::<PlannedFault>().unwrap();
        let killed = fault("kill=b@0.3:c");
        assert_eq!(
            killed,
            PlannedFault { what: FaultAction::Kill("b".into()), share: 0.3, of: "c".into() }
        );
        let FaultAction::Rate(link, rate) = fault("rate=b.access.fwd/1Mbit/s@0.9:c").what else {
            panic!()
        };
        assert_eq!((link.as_str(), rate.as_bps()), ("b.access.fwd", 1_000_000));
        let parent = fault("rate=PARENT_c.fwd/1Mbit/s@0.9:c").resolved(Some("b"));
        assert!(matches!(parent.what, FaultAction::Rate(link, _) if link == "b_c.fwd"));
        for wrong in ["kill=b", "kill=b@2:c", "burn=b@0.3:c", "rate=b@0.3:c"] {
            assert!(wrong.parse::<PlannedFault>().is_err(), "{wrong}");
        }
    }
}
