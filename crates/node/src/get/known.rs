//! What the downloads of one call tell the later ones.

use super::{Candidate, Outcome};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use thalweg_plan::selection::Prior;

/// The most origins that are remembered; a list rarely names more than one.
const MAX_ORIGINS: usize = 1024;

/// Objects up to this length come with the first answer.
const SMALL: u64 = super::worker::HEAD;

/// The longest head start. What it costs a large file is this time, before the other paths
/// connect; a small one is done or lost by then.
const MAX_HEAD_START: Duration = Duration::from_millis(300);

/// How long small files took, by origin.
///
/// After the first small file of an origin the next ones ask their first path alone for as
/// long as such a file may take: a thousand files shall not mean a thousand times as many
/// connections as there are relays.
#[derive(Default)]
pub(super) struct Pace(BTreeMap<String, Duration>);

impl Pace {
    /// Takes in how a download from `origin` went.
    pub(super) fn learn(&mut self, origin: &str, outcome: &Outcome) {
        if outcome.length.as_bytes() > SMALL {
            self.0.remove(origin);
        } else if self.0.len() < MAX_ORIGINS || self.0.contains_key(origin) {
            let took = self.0.entry(origin.to_owned()).or_default();
            // Half of the longest so far, at least, so that one slow file is forgotten slowly.
            *took = outcome.took.max(*took / 2);
        }
    }

    /// How long the first path of a download from `origin` is left alone.
    pub(super) fn head_start(&self, origin: &str) -> Duration {
        self.0.get(origin).map_or(Duration::ZERO, |took| (*took * 2).min(MAX_HEAD_START))
    }
}

/// Relays that altered bytes in this call.
#[derive(Default)]
pub(super) struct Corrupt(BTreeSet<String>);

impl Corrupt {
    /// The relay in a path's name, which may end in `%INTERFACE`.
    pub(super) fn relay(path: &str) -> &str {
        path.split_once('%').map_or(path, |(relay, _)| relay)
    }

    /// Takes in how a download went.
    pub(super) fn learn(&mut self, outcome: &Outcome) {
        self.0.extend(outcome.corrupt.iter().map(|(path, _)| Self::relay(path).to_owned()));
    }

    /// Takes these relays out of `paths`, whatever the user named, unless nothing were left.
    pub(super) fn leave_out(&self, paths: &mut Vec<Candidate>, priors: &mut Vec<Option<Prior>>) {
        let good = |c: &Candidate| !self.0.contains(Self::relay(&c.name));
        if self.0.is_empty() || !paths.iter().any(good) {
            return;
        }
        priors.resize(paths.len(), None);
        let mut keep = paths.iter().map(good).collect::<Vec<_>>().into_iter();
        priors.retain(|_| keep.next().unwrap_or(true));
        paths.retain(good);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::get::Phases;
    use thalweg_net::Route;
    use thalweg_units::ByteSize;

    fn outcome(length: u64, ms: u64, corrupt: &[&str]) -> Outcome {
        Outcome {
            target: "a".into(),
            length: ByteSize::from_bytes(length),
            fetched: ByteSize::ZERO,
            duplicate: ByteSize::ZERO,
            took: Duration::from_millis(ms),
            direct_estimate: None,
            phases: Phases::default(),
            observed: Vec::new(),
            corrupt: corrupt.iter().map(|c| ((*c).to_owned(), "why".to_owned())).collect(),
        }
    }

    #[test]
    fn small_files_earn_the_next_ones_a_head_start() {
        let mut pace = Pace::default();
        assert_eq!(pace.head_start("http://a:80"), Duration::ZERO);
        pace.learn("http://a:80", &outcome(1000, 20, &[]));
        assert_eq!(pace.head_start("http://a:80"), Duration::from_millis(40));
        assert_eq!(pace.head_start("http://b:80"), Duration::ZERO);
        pace.learn("http://a:80", &outcome(1000, 9000, &[]));
        assert_eq!(pace.head_start("http://a:80"), MAX_HEAD_START);
        pace.learn("http://a:80", &outcome(10_000_000, 9000, &[]));
        assert_eq!(pace.head_start("http://a:80"), Duration::ZERO);
    }

    #[test]
    fn relays_that_altered_bytes_are_left_out_with_their_priors() {
        let mut corrupt = Corrupt::default();
        corrupt.learn(&outcome(1, 1, &["fra%eth1"]));
        let path =
            |name: &str| Candidate { name: name.into(), route: Route::direct(), mirror: None };
        let prior = |ms| {
            let setup = Duration::from_millis(ms);
            Some(Prior { rate: thalweg_units::Rate::ZERO, setup })
        };
        let mut paths = ["direct", "fra", "fra%eth1", "nyc"].map(path).to_vec();
        let mut priors = vec![prior(1), prior(2), prior(3)];
        corrupt.leave_out(&mut paths, &mut priors);
        let names: Vec<_> = paths.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(names, ["direct", "nyc"]);
        assert_eq!(priors, [prior(1), None]);
        let mut last = vec![path("fra")];
        corrupt.leave_out(&mut last, &mut Vec::new());
        assert_eq!(last.len(), 1, "better than nothing");
    }
}
