//! The user's rules for single applications and destinations.

use crate::Application;
use serde::{Deserialize, Serialize};

/// What a rule does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// Only these interfaces, by name. If none of them is present, the connection fails.
    Only(Vec<String>),
    /// These interfaces first; others if none of them is present.
    Prefer(Vec<String>),
    /// All interfaces but these.
    Avoid(Vec<String>),
}

/// One rule. A field that is absent matches everything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Rule {
    /// The process's name, which the kernel cuts to 15 bytes; a `*` at its end matches anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<String>,
    /// The destination's port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The destination's name or address; `*.example.org` matches all names below it, but not itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination: Option<String>,
    /// What the rule does.
    #[serde(flatten)]
    pub action: Action,
}

/// A list of rules; the first that matches counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rules(pub Vec<Rule>);

impl Rules {
    /// The rule for a connection of this application to this destination.
    pub fn of(&self, application: &Application, destination: &str) -> Option<&Rule> {
        self.number(application, destination).and_then(|number| self.0.get(number - 1))
    }

    /// The number of that rule, from 1, in the written order.
    pub fn number(&self, application: &Application, destination: &str) -> Option<usize> {
        self.0.iter().position(|rule| rule.fits(application, destination)).map(|at| at + 1)
    }

    /// The places of the interfaces in `names` that the rules leave to the connection, in order of preference.
    pub fn filter(&self, application: &Application, to: &str, names: &[&str]) -> Vec<usize> {
        let all = || 0..names.len();
        let is_in = |list: &[String], at: usize| list.iter().any(|name| name == names[at]);
        match self.of(application, to).map(|rule| &rule.action) {
            None => all().collect(),
            Some(Action::Only(list)) => all().filter(|at| is_in(list, *at)).collect(),
            Some(Action::Avoid(list)) => all().filter(|at| !is_in(list, *at)).collect(),
            Some(Action::Prefer(list)) => {
                let preferred: Vec<usize> = all().filter(|at| is_in(list, *at)).collect();
                if preferred.is_empty() { all().collect() } else { preferred }
            }
        }
    }
}

impl Rule {
    /// The interfaces that it names.
    pub fn interfaces(&self) -> &[String] {
        let (Action::Only(names) | Action::Prefer(names) | Action::Avoid(names)) = &self.action;
        names
    }

    fn fits(&self, application: &Application, destination: &str) -> bool {
        let by_process = self.process.as_deref().is_none_or(|pattern| {
            let process = application.process.as_deref();
            process.is_some_and(|process| match pattern.strip_suffix('*') {
                Some(beginning) => process.as_bytes().starts_with(kept(beginning)),
                None => process.as_bytes() == kept(pattern),
            })
        });
        let by_port = self.port.is_none_or(|port| port == application.port);
        by_process && by_port && self.destination.as_deref().is_none_or(|p| names(p, destination))
    }
}

/// The part of a process's name that the kernel keeps: proc_pid_comm(5).
fn kept(name: &str) -> &[u8] {
    &name.as_bytes()[..name.len().min(15)]
}

fn names(pattern: &str, destination: &str) -> bool {
    let destination = destination.trim_end_matches('.');
    match pattern.strip_prefix('*') {
        Some(end) if end.starts_with('.') => {
            let cut = destination.len().checked_sub(end.len());
            cut.is_some_and(|cut| {
                cut > 0 && destination.get(cut..).is_some_and(|got| got.eq_ignore_ascii_case(end))
            })
        }
        _ => pattern.eq_ignore_ascii_case(destination),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(process: Option<&str>, destination: Option<&str>, action: Action) -> Rule {
        let owned = |text: &str| text.to_owned();
        Rule {
            process: process.map(owned),
            port: None,
            destination: destination.map(owned),
            action,
        }
    }

    fn app(process: &str) -> Application {
        Application { process: Some(process.into()), port: 443 }
    }

    #[test]
    fn the_first_rule_that_matches_counts() {
        let rules = Rules(vec![
            rule(Some("zoom*"), None, Action::Only(vec!["eth0".into()])),
            rule(None, Some("*.bank.example"), Action::Prefer(vec!["lte0".into()])),
            rule(None, None, Action::Avoid(vec!["lte0".into()])),
        ]);
        let names = ["eth0", "lte0", "wlan0"];
        let filter = |process, to| rules.filter(&app(process), to, &names);
        assert_eq!(filter("zoom.real", "x"), [0]);
        assert_eq!(filter("firefox", "Login.Bank.Example."), [1]);
        assert_eq!(filter("firefox", "bank.example"), [0, 2]);
        assert_eq!(filter("firefox", "notbank.example"), [0, 2]);
        assert_eq!(rules.filter(&app("f"), "a.bank.example", &["eth0"]), [0]);
        assert_eq!(rules.number(&app("f"), "nobody.example"), Some(3));
        assert!(rules.filter(&app("zoom"), "x", &["wlan0"]).is_empty());
        // The kernel reports no more of `transmission-daemon`.
        let long = Rules(vec![rule(Some("transmission-daemon"), None, Action::Only(vec![]))]);
        assert!(long.of(&app("transmission-da"), "x").is_some());
        assert!(long.of(&app("transmission-d"), "x").is_none());
    }

    #[test]
    fn a_rule_for_a_process_does_not_match_an_unknown_process() {
        let unknown = Application { process: None, port: 443 };
        let rules = Rules(vec![rule(Some("a"), None, Action::Only(vec![]))]);
        assert_eq!(rules.of(&unknown, "x"), None);
    }
}
