//! The user's settings for the interfaces.

use super::{ProbeSettings, table::UsableInterface};
use std::{collections::BTreeMap, time::Duration};
use thalweg_bond::{ConnectionMethod, Policy, Rules};
use thalweg_net::{Interface, InterfaceWish, internet_interfaces};

/// How connections are assigned to interfaces.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The method of the scheduler.
    pub schedule: ConnectionMethod,
    /// How long after its last connection a destination keeps to its interface; zero: not at all.
    pub affinity: Duration,
    /// What is allowed of interfaces, by name; of others everything is allowed.
    pub policies: BTreeMap<String, Policy>,
    /// Rules for single applications and destinations.
    pub rules: Rules,
    /// Whether hosts of this host's own networks are assigned as well; loopback never is.
    pub near: bool,
    /// How interfaces without traffic are probed.
    pub probing: ProbeSettings,
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
    /// The policy of this interface.
    pub fn policy(&self, name: &str) -> Policy {
        self.policies.get(name).copied().unwrap_or_default()
    }

    /// What the settings say about an interface that would not be used by default.
    pub fn wish(&self, name: &str) -> InterfaceWish {
        let policy = self.policies.get(name);
        let beside_tunnel = policy.is_some_and(|policy| policy.beside_tunnel);
        InterfaceWish { is_named: policy.is_some(), beside_tunnel }
    }

    /// The day of the month on which the counts of this interface begin anew.
    pub fn reset_day(&self, name: &str) -> u8 {
        self.policy(name).cap.map_or(1, |cap| cap.reset_day)
    }

    /// Whether the settings forbid nothing, so that a host with one interface needs no table.
    pub fn is_plain(&self) -> bool {
        self.policies.is_empty() && self.rules.0.is_empty()
    }
}

/// The interfaces that lead into the world and that the settings allow, in the kernel's order of preference.
pub fn present(found: &[Interface], settings: &Settings) -> Vec<UsableInterface> {
    let wanted = internet_interfaces(found, |name| settings.wish(name));
    wanted.into_iter().map(|i| UsableInterface { index: i.index.get(), name: i.name }).collect()
}
