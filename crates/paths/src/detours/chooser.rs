//! The proxy's [`PathChooser`], based on the oracle's candidates and the history.
//!
//! For destinations with known rates the history decides ([`HistoryChooser`]). Algorithm 2 decides which relay races
//! the direct path while nothing is known, over which relays a large object is sampled, and which detour a tunnel tries
//! now and then ([`super::trials`]). Both learn from what transfers observe.

use super::{
    Detours, Draw, PickedRelay, Reason,
    trials::{HEAD_START, Trials},
};
use crate::{
    chooser::{Candidates, Content, PathAttempt, PathChooser, PathRace, PathReport},
    history::{Bound, History},
    history_chooser::{HistoryChooser, RelaySource, RouteCheck},
    url::HttpUrl,
};
use parking_lot::Mutex;
use std::{cmp::Reverse, fmt, sync::Arc, time::Duration};
use thalweg_net::Route;
use thalweg_units::Rate;
use thalweg_wire::Destination;

/// Chooses ways from the history of a destination and the list of relays.
pub struct DetourChooser {
    inner: HistoryChooser,
    detours: Arc<Mutex<Detours>>,
    draw: Draw,
    trials: Mutex<Trials>,
}

impl DetourChooser {
    /// Creates a chooser over these relays. Without a history, nothing is known of single destinations.
    pub fn new(
        relays: RelaySource,
        history: Option<Arc<Mutex<History>>>,
        detours: Arc<Mutex<Detours>>,
        draw: Draw,
    ) -> Self {
        let known = Arc::clone(&detours);
        // The first unknown relay is raced, so the list is sorted by score.
        let ranked = move |content| {
            let mut relays = relays(content);
            let detours = known.lock();
            let score = |name: &str| detours.score(name).unwrap_or(0.0);
            // In millionths, so that equal scores keep their order.
            relays.sort_by_cached_key(|(name, _)| Reverse((score(name) * 1e6) as u64));
            drop(detours);
            relays
        };
        let inner = HistoryChooser::new(Box::new(ranked), history);
        Self { inner, detours, draw, trials: Mutex::default() }
    }

    /// As [`HistoryChooser::with_route_check`].
    #[must_use]
    pub fn with_route_check(mut self, check: RouteCheck) -> Self {
        self.inner = self.inner.with_route_check(check);
        self
    }

    /// The test detour first, if a new tunnel is to try it: see [`super::trials`].
    fn trial(&self, to: &Destination, content: Content, known: &PathRace) -> Option<PathRace> {
        let rate = |name: &str| self.inner.rate(to, content, name);
        // Readable content is forwarded by the proxy, which fetches its large objects in ranges.
        let tunnel = content != Content::Clear;
        let directly = known.attempts().first()?.route.is_direct();
        if !tunnel || !directly || rate("direct").is_none() || !self.trials.lock().is_due(to) {
            return None;
        }
        let relays = self.inner.detours_to(to, content);
        let names: Vec<String> = relays.iter().map(|(name, _)| name.clone()).collect();
        let picked = self.detours.lock().pick(&names, rate, self.draw);
        let untried = |p: &&PickedRelay| {
            let test = matches!(p.reason, Reason::Test | Reason::All | Reason::Unranked);
            test && p.rate.is_none()
        };
        let name = picked.iter().find(untried)?.relay.clone();
        let (name, route) = relays.into_iter().find(|(relay, _)| *relay == name)?;
        self.trials.lock().begin(to, &name);
        let direct = PathAttempt { after: HEAD_START, ..PathAttempt::direct() };
        Some(PathRace::with_direct(vec![
            PathAttempt { name, route, after: Duration::ZERO, ahead: None },
            direct,
        ]))
    }

    /// The gain that a relay's rate shows (UKAIRO Eq. 1). `None` if the direct path's rate is not known, or if the rate
    /// is a lower bound that is not above it.
    fn gain(&self, to: &Destination, content: Content, rate: Rate, bound: Bound) -> Option<f64> {
        let direct = self.inner.rate(to, content, "direct").filter(|d| *d > Rate::ZERO)?;
        let gain = rate.as_bps() as f64 / direct.as_bps() as f64 - 1.0;
        (bound == Bound::Exact || gain > 0.0).then_some(gain.max(0.0))
    }
}

impl PathChooser for DetourChooser {
    fn choose(&self, to: &Destination, content: Content) -> PathRace {
        let known = self.inner.choose(to, content);
        self.trial(to, content, &known).unwrap_or(known)
    }

    fn may_go_on(&self, route: &Route) -> bool {
        self.inner.may_go_on(route)
    }

    fn candidates(&self, url: &HttpUrl) -> Candidates {
        self.inner.candidates_among(url, |relays, rate| {
            let names: Vec<String> = relays.iter().map(|(name, _)| name.clone()).collect();
            let picked = self.detours.lock().pick(&names, rate, self.draw);
            relays.retain(|(name, _)| picked.iter().any(|p| p.relay == *name));
        })
    }

    fn learn(&self, to: &Destination, content: Content, seen: PathReport<'_>) {
        self.inner.learn(to, content, seen);
        let gain = match seen {
            PathReport::Carried(o) if o.path != "direct" => {
                // As in the paper, the rate of a trial is taken as it is: with a lower bound that shows nothing, the
                // test detour would never change.
                let on_trial = self.trials.lock().end(to, &o.path);
                let bound = if on_trial { Bound::Exact } else { o.bound };
                self.gain(to, content, o.rate, bound).map(|gain| (o.path.clone(), gain))
            }
            PathReport::Failed(path) | PathReport::Altered { path, .. } if path != "direct" => {
                Some((path.to_owned(), 0.0))
            }
            _ => None,
        };
        self.detours.lock().learn(gain.into_iter().collect());
    }
}

impl fmt::Debug for DetourChooser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DetourChooser").field("inner", &self.inner).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        detours::{CANDIDATES, trials::EVERY},
        history::PathObservation,
    };
    use thalweg_units::WallTime;
    use thalweg_wire::mesh::measure::{Candidate, CandidatesReply, Strategy};

    const SITE: &str = "www.example.org:443";

    /// Ten relays; those later in the roster have higher scores.
    fn chooser() -> DetourChooser {
        let names = || (0..10).map(|i| format!("r{i}"));
        let relay = |name: String| {
            let hop = format!("{name}.example:1080").parse().unwrap();
            (name, Route::through([hop]).unwrap())
        };
        let relays: Vec<_> = names().map(relay).collect();
        let candidate = |(i, name): (usize, String)| Candidate {
            relay: name.parse().unwrap(),
            // No score is so low that the relay would not be sampled where others gain more (`LEAST_SCORE`).
            score: (i as f64 / 10.0).max(0.05),
            evidence: 9,
            age: Duration::ZERO,
            load: None,
        };
        let reply = CandidatesReply {
            strategy: Strategy::Oblivious,
            candidates: names().enumerate().map(candidate).collect(),
            valid_for: Duration::from_secs(60),
            measured: 90,
            pairs: 90,
        };
        let mut detours = Detours::unkept();
        detours.follow(reply, None, WallTime::from_unix_nanos(1));
        let history = History::open(std::path::Path::new("/nonexistent/history.json"));
        DetourChooser::new(
            Box::new(move |_| relays.clone()),
            Some(Arc::new(Mutex::new(history))),
            Arc::new(Mutex::new(detours)),
            Draw::Proportional,
        )
    }

    fn carried(chooser: &DetourChooser, path: &str, mbps: f64, bound: Bound) {
        let observed = PathObservation {
            path: path.to_owned(),
            rate: Rate::from_mbps(mbps),
            setup: Duration::from_millis(100),
            bound,
        };
        let to = SITE.parse().unwrap();
        chooser.learn(&to, Content::Encrypted, PathReport::Carried(&observed));
    }

    fn score(chooser: &DetourChooser, relay: &str) -> f64 {
        chooser.detours.lock().score(relay).unwrap()
    }

    #[test]
    fn for_an_unknown_destination_the_relay_with_the_best_score_races_the_direct_path() {
        let choice = chooser().choose(&SITE.parse().unwrap(), Content::Encrypted);
        let names: Vec<_> = choice.attempts().iter().map(|way| way.name.as_str()).collect();
        assert_eq!(names, ["direct", "r9"]);
    }

    #[test]
    fn a_large_object_is_sampled_over_the_drawn_relays_and_the_test_detour() {
        let url = HttpUrl::parse("http://www.example.org/big").unwrap();
        let candidates = chooser().candidates(&url);
        assert_eq!(candidates.paths.len(), 1 + CANDIDATES + 1);
        assert_eq!(candidates.paths[0].name, "direct");
        assert_eq!(candidates.priors.len(), candidates.paths.len());
    }

    /// The first way of a new tunnel.
    fn first(chooser: &DetourChooser, to: &str) -> String {
        let choice = chooser.choose(&to.parse().unwrap(), Content::Encrypted);
        assert!(choice.attempts().iter().any(|way| way.name == "direct"));
        choice.attempts()[0].name.clone()
    }

    fn test_detour(chooser: &DetourChooser) -> String {
        let relay_states = chooser.detours.lock().relay_states();
        relay_states.into_iter().find(|s| s.is_test).unwrap().relay
    }

    #[test]
    fn tunnels_try_the_test_detour_once_the_direct_rate_is_known() {
        let chooser = chooser();
        assert_eq!(first(&chooser, SITE), "direct", "nothing to compare with");
        carried(&chooser, "direct", 10.0, Bound::AtLeast);
        let tried = first(&chooser, SITE);
        assert_eq!(tried, test_detour(&chooser));
        assert_eq!(first(&chooser, "other.example:443"), "direct");
        for _ in 1..EVERY {
            assert_eq!(first(&chooser, SITE), "direct", "one of {EVERY}");
        }
        // It loses, so another relay becomes the test detour.
        let before = score(&chooser, &tried);
        carried(&chooser, &tried, 5.0, Bound::AtLeast);
        assert_eq!(score(&chooser, &tried), before / 2.0);
        let second = test_detour(&chooser);
        assert_ne!(second, tried);
        assert_eq!(first(&chooser, SITE), second);
        // It wins, so all tunnels use it from now on, and it stays the test detour.
        carried(&chooser, &second, 50.0, Bound::AtLeast);
        for _ in 0..=EVERY {
            assert_eq!(first(&chooser, SITE), second);
        }
        assert_eq!(test_detour(&chooser), second);
    }

    #[test]
    fn a_detour_with_a_known_rate_is_not_tried_again() {
        let chooser = chooser();
        carried(&chooser, "direct", 10.0, Bound::AtLeast);
        let tried = first(&chooser, SITE);
        // Faster, but not by enough to be the first way: it stays the test detour.
        carried(&chooser, &tried, 11.0, Bound::AtLeast);
        assert_eq!(test_detour(&chooser), tried);
        for _ in 0..3 * EVERY {
            assert_eq!(first(&chooser, SITE), "direct");
        }
    }

    #[test]
    fn only_gains_over_a_known_direct_rate_and_failures_are_learned() {
        let chooser = chooser();
        carried(&chooser, "r1", 50.0, Bound::Exact);
        assert_eq!(score(&chooser, "r1"), 0.1, "over what?");
        carried(&chooser, "direct", 10.0, Bound::Exact);
        carried(&chooser, "r1", 20.0, Bound::AtLeast);
        assert_eq!(score(&chooser, "r1"), (0.1 + 1.0) / 2.0);
        carried(&chooser, "r2", 5.0, Bound::AtLeast);
        assert_eq!(score(&chooser, "r2"), 0.2, "it may be faster");
        carried(&chooser, "r2", 5.0, Bound::Exact);
        assert_eq!(score(&chooser, "r2"), 0.1);
        chooser.learn(&SITE.parse().unwrap(), Content::Encrypted, PathReport::Failed("r8"));
        assert_eq!(score(&chooser, "r8"), 0.4);
    }
}
