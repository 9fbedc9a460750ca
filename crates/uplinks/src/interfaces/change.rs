//! Changes of a running process's settings for interfaces.

use super::Settings;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use thalweg_bond::{Cap, ConnectionMethod, Policy, Rule, Tier};
use thalweg_units::{ByteSize, Rate};

/// More rules than anybody writes by hand. A further rule is refused.
const MOST_RULES: usize = 1024;

/// A request to a process, which answers with its report afterwards.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Change {
    /// Nothing is changed.
    Show,
    /// Assign connections by this method from now on.
    Schedule(ConnectionMethod),
    /// How long destinations keep to their interfaces; zero: not at all.
    Affinity(#[serde(with = "thalweg_units::serde_duration")] Duration),
    /// Whether hosts of this host's own networks are assigned as well.
    Near(bool),
    /// Change the policy of an interface.
    Policy(PolicyChange),
    /// Insert a rule with this number, from 1; `None`: after all others.
    Rule {
        /// The rule's number.
        at: Option<usize>,
        rule: Rule,
    },
    /// Remove the rule with this number.
    Unrule(usize),
}

/// Changes of an interface's policy; absent fields stay.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PolicyChange {
    /// The interface's name.
    pub name: String,
    /// When it is used.
    pub tier: Option<Tier>,
    /// Its rate limit; zero: none.
    pub rate_limit: Option<Rate>,
    /// Its cap per month; zero: none.
    pub cap: Option<ByteSize>,
    /// The day on which the month of its cap begins.
    pub reset_day: Option<u8>,
    /// Whether its bytes cost.
    pub metered: Option<bool>,
    /// Whether it may be probed and carry second copies although it is metered.
    pub spend: Option<bool>,
    /// The price of a gigabyte.
    pub price: Option<f64>,
    /// Whether it is used where a tunnel is the way into the world.
    pub beside_tunnel: Option<bool>,
}

impl Change {
    /// The settings after this change.
    ///
    /// # Errors
    /// Why the change is refused.
    pub(super) fn apply_to(&self, settings: &Settings) -> Result<Settings, String> {
        let mut settings = settings.clone();
        let rules = &mut settings.rules.0;
        match self {
            Self::Show => {}
            Self::Schedule(method) => settings.schedule = *method,
            Self::Affinity(time) => settings.affinity = *time,
            Self::Near(near) => settings.near = *near,
            Self::Policy(change) => {
                let policy = change.apply_to(settings.policy(&change.name));
                settings.policies.insert(change.name.clone(), policy);
            }
            Self::Rule { .. } if rules.len() >= MOST_RULES => {
                return Err(format!("there are {MOST_RULES} rules already"));
            }
            Self::Rule { at, rule } => {
                let at = at.unwrap_or(usize::MAX).saturating_sub(1).min(rules.len());
                rules.insert(at, rule.clone());
            }
            Self::Unrule(number) if (1..=rules.len()).contains(number) => {
                rules.remove(number - 1);
            }
            Self::Unrule(number) => {
                return Err(format!(
                    "there is no rule {number}; `thalweg interfaces status` lists them"
                ));
            }
        }
        Ok(settings)
    }
}

impl PolicyChange {
    fn apply_to(&self, old: Policy) -> Policy {
        let bytes = self.cap.map(ByteSize::as_bytes).or(old.cap.map(|cap| cap.bytes));
        let reset_day = self.reset_day.or(old.cap.map(|cap| cap.reset_day)).unwrap_or(1);
        let cap = bytes.filter(|bytes| *bytes > 0).map(|bytes| Cap { bytes, reset_day });
        let rate_limit = self.rate_limit.or(old.rate_limit).filter(|rate| *rate > Rate::ZERO);
        Policy {
            tier: self.tier.unwrap_or(old.tier),
            rate_limit,
            cap,
            metered: self.metered.unwrap_or(old.metered),
            spend: self.spend.unwrap_or(old.spend),
            price: self.price.unwrap_or(old.price),
            beside_tunnel: self.beside_tunnel.unwrap_or(old.beside_tunnel),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_bond::{Action, Rules};

    #[test]
    fn all_that_the_settings_say_can_be_changed() {
        let rule = |port| {
            let action = Action::Only(vec!["eth0".to_owned()]);
            Rule { process: None, port: Some(port), destination: None, action }
        };
        let mut settings = Settings::default();
        let mut change = |change: Change| -> Result<(), String> {
            // As it is sent over the socket.
            let said = serde_json::to_string(&change).unwrap();
            settings = serde_json::from_str::<Change>(&said).unwrap().apply_to(&settings)?;
            Ok(())
        };
        change(Change::Rule { at: None, rule: rule(1) }).unwrap();
        change(Change::Rule { at: Some(1), rule: rule(2) }).unwrap();
        change(Change::Rule { at: Some(9), rule: rule(3) }).unwrap();
        change(Change::Unrule(2)).unwrap();
        assert!(change(Change::Unrule(3)).unwrap_err().contains("no rule 3"));
        assert!(change(Change::Unrule(0)).is_err());
        change(Change::Near(true)).unwrap();
        change(Change::Affinity(Duration::from_secs(7))).unwrap();
        let name = "lte0".to_owned();
        let (metered, beside_tunnel) = (Some(true), Some(true));
        let same = PolicyChange::default();
        let policy = PolicyChange { name, metered, beside_tunnel, ..same };
        change(Change::Policy(policy)).unwrap();
        assert_eq!(settings.rules, Rules(vec![rule(2), rule(3)]));
        assert!(settings.near && settings.affinity == Duration::from_secs(7));
        let policy = settings.policy("lte0");
        assert!(policy.metered && policy.beside_tunnel && policy.tier == Tier::Primary);
    }
}
