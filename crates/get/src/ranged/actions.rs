//! Carries out the selection's actions, and reports the reasons.

use super::Ranged;
use crate::PathError;
use std::time::Duration;
use thalweg_base::job::Event;
use thalweg_plan::selection::{Action, Reason};
use thalweg_units::{PathId, Rate};

impl Ranged<'_, '_> {
    /// Carries out all actions of the selection.
    pub(super) fn execute_actions(&mut self) {
        while let Some(action) = self.selection.next_action() {
            match action {
                Action::Fetch { path, ranges, hedge } => {
                    let source = self.paths.source(path);
                    let Some(resource) = self.sources.used(source).cloned() else { continue };
                    self.paths.fetch(path, &ranges, &resource);
                    if hedge {
                        let bytes = ranges.iter().map(|r| r.end - r.start).sum();
                        let path = self.paths.name(path).to_owned();
                        self.run.sink.event(&Event::Hedged { path, bytes });
                    }
                }
                Action::Stop { path, stalled } => {
                    let silent = self.paths.silent(path);
                    self.stop(path);
                    if stalled {
                        self.note_stall(path, silent);
                    }
                }
                Action::Chosen { path, reason } => self.note_choice(path, reason),
            }
        }
    }

    fn note_stall(&mut self, path: PathId, silent: Duration) {
        let error = PathError::Silent(silent);
        let (name, why) = (self.paths.name(path).to_owned(), error.to_string());
        self.run.sink.event(&Event::PathFailed { path: name, why });
        self.failures.insert(path, error);
        self.join_connected();
    }

    fn note_choice(&mut self, path: PathId, reason: Reason) {
        let now = self.now();
        self.turns.get_or_insert((now, self.meter.fetched));
        let before = self.chosen.replace((path, now, self.meter.useful_of(path)));
        self.run.phases.completion_path = Some(self.paths.name(path).to_owned());
        let rates = self.rates();
        if reason.sampled() {
            self.report_sampling(&rates);
        }
        let path = self.paths.name(path).to_owned();
        let failed: Vec<_> = self.failures.keys().map(|p| self.paths.name(*p).to_owned()).collect();
        let mut reason = explain(reason, &path, &rates, &failed);
        let lanes = self.selection.lanes().iter().map(|p| self.paths.name(*p));
        let others: Vec<&str> = lanes.filter(|name| *name != path).collect();
        if !others.is_empty() {
            reason = format!("with {}, {reason}", others.join(", "));
        }
        if let Some((from, ..)) = before {
            let from = self.paths.name(from).to_owned();
            if from != path {
                self.run.sink.event(&Event::Reselected { from, path: path.clone() });
            }
        }
        self.run.sink.event(&Event::Chosen { path, reason });
    }

    /// The rates by which the paths are judged, if known.
    fn rates(&self) -> Vec<(String, Rate)> {
        let rate = |p: PathId| self.selection.rate(p, self.now()).filter(|r| *r > Rate::ZERO);
        let named = |p: PathId| Some((self.paths.name(p).to_owned(), rate(p)?));
        self.paths.all().filter_map(named).collect()
    }

    /// Reports the results of sampling.
    fn report_sampling(&mut self, rates: &[(String, Rate)]) {
        for (path, rate) in rates {
            let rate_bps = rate.as_bps();
            self.run.sink.event(&Event::PathSampled { path: path.clone(), rate_bps });
        }
        if let Some(direct) = self.paths.direct(self.sources.primary) {
            self.run.direct_estimate = self.selection.rate(direct, self.now());
        }
    }
}

/// Describes the reason, with the rates that led to it; `failed` names the paths that failed.
fn explain(reason: Reason, chosen: &str, rates: &[(String, Rate)], failed: &[String]) -> String {
    if !reason.sampled() || rates.is_empty() {
        return reason.to_string();
    }
    let mut sorted = rates.to_vec();
    sorted.sort_by_key(|(_, rate)| std::cmp::Reverse(*rate));
    let list = sorted.iter().map(|(n, r)| format!("{n} {r}")).collect::<Vec<_>>().join(", ");
    let own = rates.iter().find(|(name, _)| name == chosen).map_or(Rate::ZERO, |(_, rate)| *rate);
    let mut faster = rates.iter().filter(|(_, rate)| *rate > own).peekable();
    let beaten = faster.peek().is_some() && faster.all(|(name, _)| failed.contains(name));
    let why = if beaten { " that did not fail before" } else { "" };
    format!("{reason}{why}: {list}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_only_named_if_it_was_decisive() {
        let rates = [("direct", 96), ("fra", 100)].map(|(n, r)| (n.to_owned(), Rate::from_bps(r)));
        let says = |reason, failed: &[String]| explain(reason, "direct", &rates, failed);
        assert!(!says(Reason::DirectNotBeaten, &[]).contains("fail"));
        assert!(says(Reason::DirectNotBeaten, &["fra".to_owned()]).contains("did not fail"));
        assert!(!explain(Reason::Clear, "fra", &rates, &["direct".to_owned()]).contains("fail"));
        assert_eq!(explain(Reason::OnlyPath, "fra", &rates, &[]), Reason::OnlyPath.to_string());
    }
}
