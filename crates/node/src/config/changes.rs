//! Which settings differ between two versions of the file, and whether a running node can apply them.

use super::Config;
use serde::{Deserialize, Serialize};

/// When a changed setting takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Applies {
    /// When the settings are read again, for what begins from then on.
    Reload,
    /// When the node starts.
    Restart,
}

/// A setting that was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Its key in the file, e.g. `relay.idle`.
    pub key: String,
    pub applies: Applies,
}

/// A key, and whether it differs between two settings.
type Key = (&'static str, Applies, fn(&Config, &Config) -> bool);

/// Lists keys of a section: `keys!(Reload: relay.idle, relay.linger)`.
macro_rules! keys {
    ($($applies:ident: $($first:ident $(. $rest:ident)*),+;)+) => {
        &[$($((
            concat!(stringify!($first) $(, ".", stringify!($rest))*),
            Applies::$applies,
            |a: &Config, b: &Config| a.$first $(.$rest)* != b.$first $(.$rest)*,
        )),+),+]
    };
}

/// All settings. Lists of tables count as one setting.
const KEYS: &[Key] = keys! {
    Restart: listen, reach;
    Reload: relay.handshake, relay.connect, relay.idle, relay.linger, relay.black_hole, relay.allow_to,
        relay.deny_to, relay.ports, relay.quota.connections, relay.quota.rate, relay.quota.bytes_per_day;
    Restart: relay.enabled, relay.max_connections, relay.drain;
    Reload: measure.max_bytes_per_day, measure.max_rate;
    Restart: measure.enabled, measure.passive, measure.overlay, measure.overlay_share, measure.relay_capacity;
    Restart: drop_box;
    Reload: files.offer, files.accept;
    Restart: files.keep_free, files.spool_bytes, files.max_channels;
    Reload: cast.inbox, cast.keep_free;
    Restart: cast.max_casts, cast.relay, cast.relay_memory;
    Reload: stream.publish, stream.subscribe, stream.relay, stream.ride, stream.adapt, stream.egress,
        stream.leg_memory, stream.grace, stream.stall;
    Restart: stream.measure, stream.scheduler, stream.pace, stream.max_streams, stream.max_subscribers,
        stream.memory, stream.transcoder;
    Restart: bond.enabled, bond.max_bonds, bond.memory;
    Restart: carrier.enabled, carrier.device, carrier.path_mtu, carrier.hold, carrier.always_hold,
        carrier.repeats, carrier.share, carrier.probes, carrier.follow_tcp, carrier.harmless, carrier.ports,
        carrier.dscp, carrier.from, carrier.open, carrier.congestion, carrier.legs, carrier.legs_below;
    Restart: interfaces.schedule, interfaces.affinity, interfaces.near, interfaces.probe,
        interfaces.probe_budget, interfaces.policy, interfaces.rule;
    Restart: api.listen;
    Restart: socks.listen, socks.via, socks.legs, socks.avoid, socks.idle;
    Reload: jobs.parallel, jobs.max_open, jobs.max_ended;
    Restart: metrics.listen;
    Reload: log.format;
    Reload: oracle.token_validity, oracle.rule;
    Restart: oracle.validity, oracle.database, oracle.database_password_file, oracle.measure.enabled,
        oracle.measure.schedule, oracle.measure.t, oracle.measure.p, oracle.measure.bytes_per_day,
        oracle.measure.test_bytes, oracle.measure.test_time, oracle.measure.at_once,
        oracle.measure.congestion_control, oracle.measure.strategy;
};

impl Config {
    /// The settings that differ from `applied`, which the node uses, or for those that apply at its start from `started`,
    /// with which it was started. In the order of the file.
    pub fn changes(&self, started: &Self, applied: &Self) -> Vec<Change> {
        let differs = |(_, applies, differs): &&Key| match applies {
            Applies::Reload => differs(self, applied),
            Applies::Restart => differs(self, started),
        };
        let change = |(key, applies, _): &Key| Change { key: (*key).to_owned(), applies: *applies };
        KEYS.iter().filter(differs).map(change).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn parsed(text: &str) -> Config {
        Config::parse(text).unwrap()
    }

    fn keys(changes: &[Change], applies: Applies) -> Vec<&str> {
        changes.iter().filter(|c| c.applies == applies).map(|c| c.key.as_str()).collect()
    }

    #[test]
    fn only_what_differs_is_a_change() {
        let before = Config::default();
        let now = parsed("[relay]\nidle = \"10 min\"\nlinger = \"5 s\"\n[jobs]\nparallel = 7\n");
        let changes = now.changes(&before, &before);
        assert_eq!(keys(&changes, Applies::Reload), ["relay.linger", "jobs.parallel"]);
        assert_eq!(keys(&changes, Applies::Restart), <[&str; 0]>::default());
    }

    #[test]
    fn a_setting_that_needs_a_restart_is_told_until_the_restart() {
        let started = Config::default();
        let first = parsed("listen = [\"127.0.0.1:1\"]\n[log]\nformat = \"json\"\n");
        let changes = first.changes(&started, &started);
        assert_eq!(keys(&changes, Applies::Restart), ["listen"]);
        assert_eq!(keys(&changes, Applies::Reload), ["log.format"]);
        // Read again without a change: the log has its format, the port still waits.
        let changes = first.changes(&started, &first);
        assert_eq!(keys(&changes, Applies::Restart), ["listen"]);
        assert_eq!(keys(&changes, Applies::Reload), <[&str; 0]>::default());
        assert_eq!(started.changes(&started, &started), []);
    }

    /// The keys in a file, without those of lists of tables.
    fn keys_in(table: &toml::Table, above: &str, found: &mut BTreeSet<String>) {
        for (key, value) in table {
            let key = format!("{above}{key}");
            match value {
                toml::Value::Table(inner) => keys_in(inner, &format!("{key}."), found),
                _ => _ = found.insert(key),
            }
        }
    }

    #[test]
    fn every_setting_of_the_example_is_known_here() {
        let mut listed = BTreeSet::new();
        let mut in_list = false;
        let (mut section, mut all) = (String::new(), String::new());
        // Settings without a default are commented out.
        for line in Config::example().lines() {
            let line = line.strip_prefix("# ").unwrap_or(line);
            if let Some(name) = line.strip_prefix("[[").and_then(|l| l.strip_suffix("]]")) {
                (in_list, _) = (true, listed.insert(name.to_owned()));
            } else if line.starts_with('[') && line.ends_with(']') && !line.contains(' ') {
                (in_list, section) = (false, line.trim_matches(['[', ']']).to_owned() + ".");
            } else if !in_list
                && let Some((key, _)) = line.split_once(" = ")
                && key.chars().all(|c| c.is_ascii_lowercase() || c == '_')
            {
                all = key.to_owned();
                listed.insert(format!("{section}{all}"));
            } else if line.is_empty() {
                in_list = false;
            }
        }
        assert!(!all.is_empty());
        let mut found = BTreeSet::new();
        keys_in(&Config::example().parse().unwrap(), "", &mut found);
        let known: BTreeSet<String> = KEYS.iter().map(|(key, ..)| (*key).to_owned()).collect();
        let unknown: Vec<_> = listed.union(&found).filter(|key| !known.contains(*key)).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }

    #[test]
    fn the_page_of_settings_says_when_each_one_applies() {
        let page = include_str!("../../../../docs/settings.md");
        let list = page.split("`thalweg config reload` applies these").nth(1).unwrap();
        let list = list.split("\n\n").nth(1).unwrap();
        let mut told: Vec<&str> = list.split('`').skip(1).step_by(2).collect();
        let mut known: Vec<&str> = KEYS
            .iter()
            .filter(|(_, applies, _)| *applies == Applies::Reload)
            .map(|k| k.0)
            .collect();
        told.sort_unstable();
        known.sort_unstable();
        assert_eq!(told, known);
    }
}
