//! What a user wants of the interfaces.

use super::Probing;
use std::{collections::BTreeMap, time::Duration};
use thalweg_bond::{ConnectionMethod, Policy, Rules};
use thalweg_net::Wish;

/// How whole connections are assigned.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The scheduler.
    pub schedule: ConnectionMethod,
    /// How long after its last connection a destination keeps to its interface; zero: not.
    pub affinity: Duration,
    /// What is allowed of interfaces, by name; of others all.
    pub policies: BTreeMap<String, Policy>,
    /// For single applications and destinations.
    pub rules: Rules,
    /// Whether hosts of this host's own networks are assigned as well; loopback never is.
    pub near: bool,
    /// How interfaces are probed of which traffic tells nothing.
    pub probing: Probing,
}

impl Default for Settings {
    fn default() -> Self {
        let affinity = Duration::from_secs(600);
        let schedule = ConnectionMethod::default();
        let (policies, rules, probing) = Default::default();
        Self { schedule, affinity, policies, rules, near: false, probing }
    }
}

impl Settings {
    /// What is allowed of this interface.
    pub fn policy(&self, name: &str) -> Policy {
        self.policies.get(name).copied().unwrap_or_default()
    }

    /// What is said of this interface where it would not be used without a word.
    pub fn wish(&self, name: &str) -> Wish {
        let policy = self.policies.get(name);
        let beside_tunnel = policy.is_some_and(|policy| policy.beside_tunnel);
        Wish { is_named: policy.is_some(), beside_tunnel }
    }

    /// The day on which its counts begin anew.
    pub fn reset_day(&self, name: &str) -> u8 {
        self.policy(name).cap.map_or(1, |cap| cap.reset_day)
    }

    /// Whether nothing is forbidden, so that a host with one interface needs no table.
    pub fn is_plain(&self) -> bool {
        self.policies.is_empty() && self.rules.0.is_empty()
    }
}
