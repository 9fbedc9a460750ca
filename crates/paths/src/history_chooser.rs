//! A [`PathChooser`] that uses the results of earlier transfers of this host.

use super::chooser::{
    Candidates, Content, DIRECT, LATER, PathAttempt, PathChooser, PathRace, PathReport,
};
use crate::{
    candidates::{MAX_CANDIDATES, candidates},
    history::History,
    url::HttpUrl,
};
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    fmt,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};
use thalweg_net::Route;
use thalweg_plan::selection::Prior;
use thalweg_units::{Rate, WallTime};
use thalweg_wire::Destination;

/// Returns the relays that may be used at this moment, by name.
pub type RelaySource = Box<dyn Fn(Content) -> Vec<(String, Route)> + Send + Sync>;

/// Whether all relays of a route are unchanged since it was dialled.
pub type RouteCheck = Box<dyn Fn(&Route) -> bool + Send + Sync>;

/// A detour begins at once if it is known to be this much faster: UKAIRO's definition of a gain (§2.1: 20 % and 1
/// Mbit/s).
const GAIN: f64 = 1.2;
const GAIN_BPS: u64 = 1_000_000;

/// How long a detour is not used to a destination after it failed there.
const GRUDGE: Duration = Duration::from_secs(300);

/// The most failures that are remembered, the oldest dropped first: more than one user's programs cause in that time.
const MAX_FAILED: usize = 1024;

/// Chooses ways from the history: a detour first if it is known to be faster; otherwise the direct way, and the most
/// promising detour a little later.
///
/// It does not explore: it learns about detours from races that they win, from objects that are fetched in ranges, and
/// from `thalweg get`.
pub struct HistoryChooser {
    relays: RelaySource,
    route_check: RouteCheck,
    history: Option<Arc<Mutex<History>>>,
    failed: Mutex<BTreeMap<(Destination, String), Instant>>,
}

impl HistoryChooser {
    /// Creates a chooser over these relays. Without a history, nothing is known or stored.
    pub fn new(relays: RelaySource, history: Option<Arc<Mutex<History>>>) -> Self {
        Self { relays, route_check: Box::new(|_| true), history, failed: Mutex::default() }
    }

    /// Ends connections over routes that `check` rejects. Without it, none are ended.
    #[must_use]
    pub fn with_route_check(mut self, check: RouteCheck) -> Self {
        self.route_check = check;
        self
    }

    /// The relays through which `to` may be reached; none if it is near.
    pub(crate) fn detours_to(&self, to: &Destination, content: Content) -> Vec<(String, Route)> {
        if to.host.is_near() { Vec::new() } else { self.usable(to, content) }
    }

    /// The relays for `to`, without those that recently failed there or altered bytes.
    fn usable(&self, to: &Destination, content: Content) -> Vec<(String, Route)> {
        let mut relays = (self.relays)(content);
        if relays.is_empty() {
            return relays;
        }
        let origin = origin(to, content);
        let failed = self.failed.lock();
        let grudge = |name: &str| {
            let since = failed.get(&(to.clone(), name.to_owned()));
            since.is_some_and(|since| since.elapsed() < GRUDGE)
        };
        relays.retain(|(name, _)| !grudge(name) && !self.is_quarantined(name, &origin));
        relays
    }

    fn is_quarantined(&self, relay: &str, origin: &str) -> bool {
        let Some(history) = &self.history else { return false };
        history.lock().is_quarantined(relay, Some(origin), now())
    }

    fn prior(&self, origin: &str, path: &str) -> Option<Prior> {
        self.history.as_ref()?.lock().prior(origin, path, now())
    }

    /// The known rate of this path to this destination.
    pub(crate) fn rate(&self, to: &Destination, content: Content, path: &str) -> Option<Rate> {
        self.prior(&origin(to, content), path).map(|prior| prior.rate)
    }

    /// The paths for a large object, over the relays that `choose` keeps; it gets a function that returns known rates.
    pub(crate) fn candidates_among(
        &self,
        url: &HttpUrl,
        choose: impl FnOnce(&mut Vec<(String, Route)>, &dyn Fn(&str) -> Option<Rate>),
    ) -> Candidates {
        let (to, origin) = (url.destination(), url.origin());
        let content = if url.is_https() { Content::Encrypted } else { Content::Clear };
        let mut relays = self.detours_to(to, content);
        let rate = |name: &str| self.prior(&origin, name).map(|prior| prior.rate);
        choose(&mut relays, &rate);
        let paths = candidates(&[], None, &relays, MAX_CANDIDATES, rate);
        let priors = paths.iter().map(|path| self.prior(&origin, &path.name)).collect();
        Candidates { paths, priors }
    }

    fn remember_failure(&self, to: &Destination, path: &str) {
        let mut failed = self.failed.lock();
        failed.retain(|_, since| since.elapsed() < GRUDGE);
        if failed.len() >= MAX_FAILED {
            let oldest = failed.iter().min_by_key(|(_, since)| **since).map(|(key, _)| key.clone());
            oldest.and_then(|key| failed.remove(&key));
        }
        failed.insert((to.clone(), path.to_owned()), Instant::now());
    }
}

impl PathChooser for HistoryChooser {
    fn choose(&self, to: &Destination, content: Content) -> PathRace {
        if to.host.is_near() {
            return PathRace::direct();
        }
        let origin = origin(to, content);
        let relays = self.usable(to, content).into_iter();
        let known = relays.map(|(name, route)| (self.prior(&origin, &name), name, route));
        // Of equal relays the first is taken: members are in the roster's order.
        let best = known.reduce(|a, b| if rate(&b.0) > rate(&a.0) { b } else { a });
        let Some((prior, name, route)) = best else { return PathRace::direct() };
        let leads = prior.is_some_and(|p| is_gain(self.prior(&origin, DIRECT), p));
        let (first, later) = match (leads, prior) {
            (true, Some(prior)) => (Duration::ZERO, LATER.max(prior.setup * 2)),
            _ => (LATER, Duration::ZERO),
        };
        let direct = PathAttempt { after: later, ..PathAttempt::direct() };
        PathRace::with_direct(vec![direct, PathAttempt { name, route, after: first, ahead: None }])
    }

    fn candidates(&self, url: &HttpUrl) -> Candidates {
        self.candidates_among(url, |_, _| ())
    }

    fn may_go_on(&self, route: &Route) -> bool {
        (self.route_check)(route)
    }

    fn learn(&self, to: &Destination, content: Content, seen: PathReport<'_>) {
        match seen {
            PathReport::Failed(path) if path != DIRECT => self.remember_failure(to, path),
            PathReport::Failed(_) => {}
            PathReport::Carried(observed) => {
                if let Some(history) = &self.history {
                    history.lock().learn(
                        &origin(to, content),
                        std::slice::from_ref(observed),
                        now(),
                    );
                }
            }
            PathReport::Altered { path, why } => {
                if let Some(history) = &self.history {
                    history.lock().quarantine(path, &origin(to, content), why, now());
                }
            }
        }
    }
}

/// The same as [`HttpUrl::origin`], so that downloads and tunnels share what they learn.
fn origin(to: &Destination, content: Content) -> String {
    match content {
        Content::Clear => format!("http://{to}"),
        Content::Encrypted | Content::Unknown => format!("https://{to}"),
    }
}

fn rate(prior: &Option<Prior>) -> Rate {
    prior.map_or(Rate::ZERO, |prior| prior.rate)
}

/// Whether to begin with a detour with this prior. If nothing is known of the direct way, it never carried anything,
/// and the detour did.
fn is_gain(direct: Option<Prior>, detour: Prior) -> bool {
    let direct = rate(&direct).as_bps();
    let detour = detour.rate.as_bps();
    detour as f64 >= GAIN * direct as f64 && detour >= direct.saturating_add(GAIN_BPS)
}

fn now() -> WallTime {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    WallTime::from_unix_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

impl fmt::Debug for HistoryChooser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HistoryChooser").field("failed", &self.failed.lock().len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Bound, PathObservation};

    const SITE: &str = "www.example.org:443";

    fn relays() -> RelaySource {
        let relay = |name: &str| {
            let hop = format!("{name}.example:1080").parse().unwrap();
            (name.to_owned(), Route::through([hop]).unwrap())
        };
        Box::new(move |_| ["fra", "nyc"].map(relay).to_vec())
    }

    fn chooser(seen: &[(&str, f64)]) -> HistoryChooser {
        let dir = tempfile::tempdir().unwrap();
        let history = History::open(&dir.path().join("history.json"));
        let chooser = HistoryChooser::new(relays(), Some(Arc::new(Mutex::new(history))));
        for (path, mbps) in seen {
            let observed = PathObservation {
                path: (*path).to_owned(),
                rate: Rate::from_mbps(*mbps),
                setup: Duration::from_millis(400),
                bound: Bound::Exact,
            };
            chooser.learn(&site(), Content::Encrypted, PathReport::Carried(&observed));
        }
        chooser
    }

    fn site() -> Destination {
        SITE.parse().unwrap()
    }

    fn ways(chooser: &HistoryChooser, to: &str) -> Vec<(String, u64)> {
        let choice = chooser.choose(&to.parse().unwrap(), Content::Encrypted);
        let way = |w: &PathAttempt| (w.name.clone(), w.after.as_millis() as u64);
        choice.attempts().iter().map(way).collect()
    }

    fn named(ways: &[(&str, u64)]) -> Vec<(String, u64)> {
        ways.iter().map(|(name, after)| ((*name).to_owned(), *after)).collect()
    }

    #[test]
    fn an_unknown_destination_begins_directly_and_a_known_gain_by_the_detour() {
        assert_eq!(ways(&chooser(&[]), SITE), named(&[("direct", 0), ("fra", 500)]));
        let gain = chooser(&[("direct", 10.0), ("nyc", 13.0)]);
        assert_eq!(ways(&gain, SITE), named(&[("nyc", 0), ("direct", 800)]));
        let little = chooser(&[("direct", 10.0), ("nyc", 11.0)]);
        assert_eq!(ways(&little, SITE), named(&[("direct", 0), ("nyc", 500)]));
        let slow = chooser(&[("direct", 0.1), ("nyc", 0.2)]);
        assert_eq!(ways(&slow, SITE), named(&[("direct", 0), ("nyc", 500)]));
        let other = ways(&gain, "other.example:443");
        assert_eq!(other, named(&[("direct", 0), ("fra", 500)]), "that site alone");
    }

    #[test]
    fn beyond_the_limit_the_oldest_failure_is_forgotten() {
        let chooser = chooser(&[]);
        // The oldest by time is the last by name.
        let first: Destination = "z.example:443".parse().unwrap();
        chooser.remember_failure(&first, "fra");
        for n in 0..MAX_FAILED {
            chooser.remember_failure(&format!("a{n}.example:443").parse().unwrap(), "fra");
        }
        assert_eq!(ways(&chooser, "z.example:443")[1].0, "fra");
        assert_eq!(ways(&chooser, "a0.example:443")[1].0, "nyc");
    }

    #[test]
    fn near_hosts_are_not_reached_by_relays() {
        let chooser = chooser(&[]);
        for near in [
            "localhost:80",
            "printer:631",
            "10.1.2.3:80",
            "[::1]:80",
            "[::ffff:127.0.0.1]:80",
            "192.168.1.1:443",
            "a.localhost:80",
            "nas.local.:80",
        ] {
            assert_eq!(ways(&chooser, near), named(&[("direct", 0)]), "{near}");
        }
        let url = HttpUrl::parse("http://192.168.1.1/x").unwrap();
        assert_eq!(chooser.candidates(&url).paths.len(), 1);
        let url = HttpUrl::parse("http://www.example.org/x").unwrap();
        assert_eq!(chooser.candidates(&url).paths.len(), 3);
    }

    #[test]
    fn a_detour_that_failed_there_or_altered_bytes_is_left_out() {
        let chooser = chooser(&[("nyc", 50.0)]);
        chooser.learn(&site(), Content::Encrypted, PathReport::Failed("nyc"));
        assert_eq!(ways(&chooser, SITE), named(&[("direct", 0), ("fra", 500)]));
        let altered = PathReport::Altered { path: "fra", why: "a test" };
        chooser.learn(&site(), Content::Encrypted, altered);
        assert_eq!(ways(&chooser, SITE), named(&[("direct", 0)]));
        assert_eq!(ways(&chooser, "other.example:443").len(), 2);
    }
}
