//! What earlier downloads of one call teach later ones: how long small files take, and which relays altered bytes.

use super::Outcome;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use thalweg_paths::candidates::Candidate;
use thalweg_plan::selection::Prior;

/// The most origins that are remembered; a list rarely has more than one.
const MAX_ORIGINS: usize = 1024;

/// Objects up to this length arrive with the first answer.
const SMALL: u64 = super::worker::HEAD;

/// The longest head start. A large file loses this much time before the other paths connect; a small file is complete
/// by then, or is not going to be.
const MAX_HEAD_START: Duration = Duration::from_millis(300);

/// The time that small files take, by origin.
///
/// After the first small file of an origin, the next ones first use their first path alone, for as long as such a file
/// may take. Otherwise a thousand files would open a thousand connections for each relay.
#[derive(Default)]
pub(super) struct SmallFileTimes(BTreeMap<String, Duration>);

impl SmallFileTimes {
    /// Learns from a download from `origin`.
    pub(super) fn learn(&mut self, origin: &str, outcome: &Outcome) {
        if outcome.length.as_bytes() > SMALL {
            self.0.remove(origin);
        } else if self.0.len() < MAX_ORIGINS || self.0.contains_key(origin) {
            let took = self.0.entry(origin.to_owned()).or_default();
            // At least half of the previous value, so that a slow file is forgotten gradually.
            *took = outcome.took.max(*took / 2);
        }
    }

    /// How long the first path of a download from `origin` runs alone.
    pub(super) fn head_start(&self, origin: &str) -> Duration {
        self.0.get(origin).map_or(Duration::ZERO, |took| (*took * 2).min(MAX_HEAD_START))
    }
}

/// Paths that altered bytes in this call, by relay and origin.
///
/// They are avoided for that origin only: a server could alter what it sends to a relay in order to have it excluded.
/// [`thalweg_paths::history`] decides what else follows about a relay.
#[derive(Default)]
pub(super) struct CorruptPaths(BTreeSet<(String, String)>);

/// The origins that the paths of a request lead to.
pub(super) struct Origins {
    own: String,
    /// The origins of mirrors, by path name.
    mirrors: BTreeMap<String, String>,
}

impl Origins {
    /// Creates them from the origin of the URL, `own`, and the paths.
    pub(super) fn new(own: String, paths: &[Candidate]) -> Self {
        let mirror = |c: &Candidate| Some((c.name.clone(), c.mirror.as_ref()?.origin()));
        Self { own, mirrors: paths.iter().filter_map(mirror).collect() }
    }

    /// The origin of the download's own URL.
    pub(super) fn own(&self) -> &str {
        &self.own
    }

    fn at(&self, path: &str) -> &str {
        self.mirrors.get(path).unwrap_or(&self.own)
    }
}

/// The relay to blame for a path's bytes, and the origin.
pub(super) struct Blame<'a> {
    /// The relay or chain; [`DIRECT`] if the path has none.
    pub(super) relay: &'a str,
    pub(super) origin: &'a str,
}

/// The name of a path without relays.
pub(super) const DIRECT: &str = "direct";

impl CorruptPaths {
    /// The relay that delivered the bytes of `path`, whose name is `RELAY%INTERFACE@MIRROR`; the parts from `%` and
    /// from `@` are optional.
    pub(super) fn blamed_relay<'a>(path: &'a str, origins: &'a Origins) -> Blame<'a> {
        let relay = path.split(['%', '@']).next().unwrap_or(path);
        Blame { relay, origin: origins.at(path) }
    }

    /// Records paths that altered bytes.
    pub(super) fn learn(&mut self, corrupt: &[(String, String)], origins: &Origins) {
        for (path, _) in corrupt {
            let blame = Self::blamed_relay(path, origins);
            self.0.insert((blame.relay.to_owned(), blame.origin.to_owned()));
        }
    }

    /// Removes these paths from `paths`, even if the user named them, unless no path would be left.
    pub(super) fn leave_out(
        &self,
        origins: &Origins,
        paths: &mut Vec<Candidate>,
        priors: &mut Vec<Option<Prior>>,
    ) {
        let good = |c: &Candidate| {
            let blame = Self::blamed_relay(&c.name, origins);
            !self.0.contains(&(blame.relay.to_owned(), blame.origin.to_owned()))
        };
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
    use crate::Phases;
    use thalweg_net::Route;
    use thalweg_units::ByteSize;

    fn outcome(length: u64, ms: u64) -> Outcome {
        Outcome {
            target: "a".into(),
            length: ByteSize::from_bytes(length),
            fetched: ByteSize::ZERO,
            duplicate: ByteSize::ZERO,
            took: Duration::from_millis(ms),
            direct_estimate: None,
            phases: Phases::default(),
            observed: Vec::new(),
            corrupt: Vec::new(),
            facts: Default::default(),
        }
    }

    #[test]
    fn small_files_give_the_next_ones_a_head_start() {
        let mut pace = SmallFileTimes::default();
        assert_eq!(pace.head_start("http://a:80"), Duration::ZERO);
        pace.learn("http://a:80", &outcome(1000, 20));
        assert_eq!(pace.head_start("http://a:80"), Duration::from_millis(40));
        assert_eq!(pace.head_start("http://b:80"), Duration::ZERO);
        pace.learn("http://a:80", &outcome(1000, 9000));
        assert_eq!(pace.head_start("http://a:80"), MAX_HEAD_START);
        pace.learn("http://a:80", &outcome(10_000_000, 9000));
        assert_eq!(pace.head_start("http://a:80"), Duration::ZERO);
    }

    #[test]
    fn relays_that_altered_bytes_are_left_out_with_their_priors() {
        let mut corrupt = CorruptPaths::default();
        let origins = |own: &str, paths: &[Candidate]| Origins::new(own.to_owned(), paths);
        let here = origins("http://a:80", &[]);
        corrupt.learn(&[("fra%eth1".to_owned(), "why".to_owned())], &here);
        let path =
            |name: &str| Candidate { name: name.into(), route: Route::direct(), mirror: None };
        let prior = |ms| {
            let setup = Duration::from_millis(ms);
            Some(Prior { rate: thalweg_units::Rate::ZERO, setup })
        };
        let mut paths = ["direct", "fra", "fra%eth1", "nyc"].map(path).to_vec();
        let mut priors = vec![prior(1), prior(2), prior(3)];
        let elsewhere = origins("http://b:80", &[]);
        corrupt.leave_out(&elsewhere, &mut paths, &mut priors.clone());
        assert_eq!(paths.len(), 4, "nothing is known of it there");
        corrupt.leave_out(&here, &mut paths, &mut priors);
        let names: Vec<_> = paths.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(names, ["direct", "nyc"]);
        assert_eq!(priors, [prior(1), None]);
        let mut last = vec![path("fra")];
        corrupt.leave_out(&here, &mut last, &mut Vec::new());
        assert_eq!(last.len(), 1, "better than nothing");
    }

    #[test]
    fn a_mirror_that_sends_other_bytes_excludes_only_its_own_path() {
        let mirror = Some(thalweg_paths::url::HttpUrl::parse("http://m:80/x").unwrap());
        let path =
            |name: &str, mirror| Candidate { name: name.into(), route: Route::direct(), mirror };
        let paths = [path("direct", None), path("fra", None), path("fra@m", mirror)];
        let origins = Origins::new("http://a:80".to_owned(), &paths);
        let mut corrupt = CorruptPaths::default();
        corrupt.learn(&[("fra@m".to_owned(), "why".to_owned())], &origins);
        let mut left = paths.to_vec();
        corrupt.leave_out(&origins, &mut left, &mut Vec::new());
        let names: Vec<_> = left.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(names, ["direct", "fra"]);
    }
}
