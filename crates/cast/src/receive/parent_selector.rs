//! Decides which of a receiver's candidates are its parents now, and which come next.
//!
//! The plan's order is followed as long as parents deliver what is expected. A parent that failed is tried again after
//! a wait. A slow one is replaced by another that is expected to deliver, or has delivered, more. When it is used
//! again, and when a candidate is tried of which nothing is known, it is on trial: there is one parent more than wanted
//! for one span, and then the worse one is left. An additional parent transfers nothing twice, because each symbol is
//! requested from one parent.

use super::reception::{ParentName, Parents};
use crate::leg::child::ReceivedBytes;
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use thalweg_wire::cast::{Candidate, Fault, ServiceMode};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The first wait before a parent that failed is tried again. It doubles each time.
const FIRST_WAIT: Duration = Duration::from_millis(500);

/// The maximum of that wait.
const LONGEST_WAIT: Duration = Duration::from_secs(20);

/// The first wait before a slow parent is tried again. It doubles each time.
const FIRST_REST: Duration = Duration::from_secs(20);

/// The maximum of that wait.
const LONGEST_REST: Duration = Duration::from_secs(160);

/// How long a better parent that does not know the cast yet keeps its place. The source reaches all receivers within a
/// few round trips.
const MAX_AWAITED: Duration = Duration::from_secs(3);

/// The interval at which such a parent is asked again.
const AWAITED_INTERVAL: Duration = Duration::from_millis(200);

/// The first span over which a parent's rate is judged. Connections have ramped up by then.
const FIRST_SPAN: Duration = Duration::from_secs(4);

/// The following spans, once a parent has delivered for a whole one. A stalled connection is then no longer explained
/// by ramping up. With spans of 4 s, `cast-reconfigure` lost 12 s.
const LATER_SPAN: Duration = Duration::from_secs(2);

/// A parent is slow if its rate is less than the expected rate divided by this, and another candidate would deliver at
/// least twice as much.
const SLOW_DIVISOR: u64 = 4;

/// The minimum interval between trials of unknown candidates, if no plan says what to expect.
const TRIAL_INTERVAL: Duration = Duration::from_secs(15);

/// How long a parent's last rate is remembered.
const RATE_LIFETIME: Duration = Duration::from_secs(60);

/// The active parents, and what is remembered of others.
#[derive(Debug, Default)]
pub struct ParentSelector {
    now: BTreeMap<ParentName, ActiveParent>,
    past: BTreeMap<ParentName, ParentHistory>,
    /// Candidates that do not know the cast yet, with the time since when they are waited for.
    awaited: BTreeMap<ParentName, Instant>,
    trial: Option<ParentName>,
    /// When the last trial began.
    tried: Option<Instant>,
}

#[derive(Debug)]
struct ActiveParent {
    candidate: Candidate,
    got: Arc<ReceivedBytes>,
    end: CancellationToken,
    /// The start of the current span, and the useful bytes received before it.
    since: Instant,
    before: u64,
    /// Useful bytes received before it became a parent this time.
    first: u64,
    /// The rate over the last complete span, in bit/s.
    bps: Option<u64>,
}

/// What is remembered of a candidate.
#[derive(Debug, Default)]
struct ParentHistory {
    rest: Option<Backoff>,
    /// Its last rate in bit/s, and until when that counts.
    gave: Option<(u64, Instant)>,
}

/// A candidate that is not used for now.
#[derive(Debug)]
struct Backoff {
    wait: Duration,
    until: Instant,
    why: BackoffReason,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BackoffReason {
    Failed,
    /// It may be used earlier if there is no other candidate.
    Slow,
    /// It sent data that does not match the digests. It is never used again.
    Lies,
}

impl ParentSelector {
    /// The candidates to start now. A better candidate than the worst parent is started beside it;
    /// [`ParentSelector::review`] then decides.
    pub fn next(&mut self, wanted: &Parents) -> Vec<Candidate> {
        let now = Instant::now();
        let mut places = wanted.at_once;
        let mut next = Vec::new();
        for candidate in &wanted.candidates {
            if places == 0 {
                break;
            }
            let who = &candidate.name;
            let (rests, is_now) = (self.rests(who), self.now.contains_key(who));
            let since = self.awaited.get(who);
            let is_awaited = since.is_some_and(|since| now.duration_since(*since) < MAX_AWAITED);
            let is_back = !rests && !is_now && self.was_slow(who);
            if is_back && self.now.len() >= wanted.at_once {
                // It runs beside the others until its rate is known.
                if self.trial.is_none() {
                    self.begin_trial(who);
                    next.push(candidate.clone());
                }
                continue;
            }
            if !rests && !is_now {
                next.push(candidate.clone());
            }
            places -= usize::from(!rests || is_now || is_awaited);
        }
        if places > 0 {
            next.extend(self.slow_ones(wanted).into_iter().take(places));
        } else if next.is_empty() {
            next.extend(self.unknown_one(wanted));
        }
        next
    }

    fn rests(&self, who: &ParentName) -> bool {
        let rest = self.past.get(who).and_then(|past| past.rest.as_ref());
        rest.is_some_and(|rest| rest.why == BackoffReason::Lies || rest.until > Instant::now())
    }

    fn was_slow(&self, who: &ParentName) -> bool {
        let rest = self.past.get(who).and_then(|past| past.rest.as_ref());
        rest.is_some_and(|rest| rest.why == BackoffReason::Slow)
    }

    /// Candidates that wait because they were slow: better than none.
    fn slow_ones(&self, wanted: &Parents) -> Vec<Candidate> {
        let is_one = |c: &&Candidate| {
            let is_free = !self.now.contains_key(&c.name);
            is_free && self.was_slow(&c.name) && self.rests(&c.name)
        };
        wanted.candidates.iter().filter(is_one).cloned().collect()
    }

    /// A candidate to try, if the plan gives no expected rates.
    fn unknown_one(&mut self, wanted: &Parents) -> Option<Candidate> {
        let is_time = self.tried.is_none_or(|tried| tried.elapsed() >= TRIAL_INTERVAL);
        let worst = self.worst(None)?;
        let is_as_planned =
            |expected: u64| worst.bps.is_some_and(|bps| bps >= expected / SLOW_DIVISOR);
        let all_judged = self.now.values().all(|now| now.bps.is_some());
        if !is_time
            || !all_judged
            || self.trial.is_some()
            || worst.candidate.bps.is_some_and(is_as_planned)
        {
            return None;
        }
        let is_unknown = |c: &&Candidate| {
            let is_free = c.want == ServiceMode::Pull && !self.now.contains_key(&c.name);
            is_free && !self.rests(&c.name) && self.esteem(c).is_none()
        };
        let found = wanted.candidates.iter().find(is_unknown).cloned()?;
        self.begin_trial(&found.name);
        Some(found)
    }

    fn begin_trial(&mut self, who: &ParentName) {
        (self.trial, self.tried) = (Some(who.clone()), Some(Instant::now()));
    }

    /// The rate that a candidate is assumed to deliver: its last one if recent, or the plan's.
    fn esteem(&self, candidate: &Candidate) -> Option<u64> {
        let gave = self.past.get(&candidate.name).and_then(|past| past.gave);
        let gave = gave.filter(|(_, until)| *until > Instant::now()).map(|(bps, _)| bps);
        gave.or(candidate.bps)
    }

    /// The parent with the lowest rate, except `but`.
    fn worst(&self, but: Option<&ParentName>) -> Option<&ActiveParent> {
        let others = self.now.values().filter(|now| Some(&now.candidate.name) != but);
        others.min_by_key(|now| now.bps)
    }

    /// Stops parents beyond the wanted number once better ones deliver. Returns the parents that must be left because
    /// they are slow.
    pub fn review(&mut self, wanted: &Parents) -> Vec<(ParentName, (Fault, String))> {
        let judged = self.judge();
        let mut all: Vec<(usize, ParentName)> = Vec::new();
        for who in self.now.keys().filter(|who| Some(*who) != self.trial.as_ref()) {
            all.push((rank(wanted, who), who.clone()));
        }
        all.sort();
        let gives = |who: &ParentName| self.now.get(who).is_some_and(ActiveParent::has_given);
        let is_served = all.iter().take(wanted.at_once).all(|(_, who)| gives(who));
        if all.len() > wanted.at_once && is_served {
            for (_, who) in all.drain(wanted.at_once..) {
                self.now.get(&who).inspect(|now| now.end.cancel());
            }
        }
        let mut left: Vec<_> = self.conclude_trial(wanted).into_iter().collect();
        for who in judged.into_iter().filter(|who| all.iter().any(|(_, other)| other == who)) {
            left.extend(self.slow(who, wanted));
        }
        for (who, _) in &left {
            self.now.get(who).inspect(|now| now.end.cancel());
            self.rest(who.clone(), BackoffReason::Slow);
        }
        left
    }

    /// Ends complete spans. Returns the parents whose span ended.
    fn judge(&mut self) -> Vec<ParentName> {
        let at = Instant::now();
        let mut judged = Vec::new();
        for (who, now) in &mut self.now {
            let span = at.duration_since(now.since);
            let enough = if now.bps.is_some() { LATER_SPAN } else { FIRST_SPAN };
            if span < enough {
                continue;
            }
            let bytes = now.got.useful();
            let bps = (bytes.saturating_sub(now.before) as f64 * 8.0 / span.as_secs_f64()) as u64;
            (now.since, now.before, now.bps) = (at, bytes, Some(bps));
            self.past.entry(who.clone()).or_default().gave = Some((bps, at + RATE_LIFETIME));
            judged.push(who.clone());
        }
        judged
    }

    /// The loser of a trial that has ended.
    fn conclude_trial(&mut self, wanted: &Parents) -> Option<(ParentName, (Fault, String))> {
        let who = self.trial.clone()?;
        let found = self.now.get(&who).map(|now| (now.bps, now.candidate.bps.is_some()));
        let Some((tried, is_planned)) = found else {
            // Its leg has ended.
            self.trial = None;
            return None;
        };
        let tried = tried?;
        self.trial = None;
        if self.now.len() <= wanted.at_once {
            return None;
        }
        let worst = self.worst(Some(&who))?;
        let (other, gave) = (worst.candidate.name.clone(), worst.bps.unwrap_or(0));
        // The plan may have reasons that one receiver does not see, so its order gets the benefit of the doubt.
        let is_better = match is_planned && rank(wanted, &who) < rank(wanted, &other) {
            true => tried.saturating_mul(2) >= gave,
            false => tried > gave.saturating_add(gave / 2),
        };
        let (loser, gives, more) =
            if is_better { (other, gave, tried) } else { (who, tried, gave) };
        let why = format!("the parent sends {gives} bit/s, another one {more} bit/s");
        Some((loser, (Fault::Slow, why)))
    }

    fn slow(&self, who: ParentName, wanted: &Parents) -> Option<(ParentName, (Fault, String))> {
        let now = self.now.get(&who)?;
        let bps = now.bps?;
        let is_free = |c: &&Candidate| !self.now.contains_key(&c.name) && !self.rests(&c.name);
        let free = wanted.candidates.iter().filter(is_free);
        let other = free.filter_map(|c| self.esteem(c)).max()?;
        let all: Vec<u64> = self.now.values().filter_map(|now| now.bps).collect();
        let total: u64 = all.iter().sum();
        // If several parents together fill this host's line, each gets only a part, and none is slow.
        let is_far_behind = bps.saturating_mul(2 * all.len() as u64) < total || total < other;
        let expected = now.candidate.bps.unwrap_or(other);
        let is_slow = bps < expected / SLOW_DIVISOR && other > 2 * bps && is_far_behind;
        let why = format!("the parent sends {bps} bit/s, but {expected} bit/s were expected");
        is_slow.then_some((who, (Fault::Slow, why)))
    }

    /// Adds a parent with the counter of its bytes and the token that ends its leg.
    pub fn begin(
        &mut self,
        candidate: &Candidate,
        got: Arc<ReceivedBytes>,
        end: CancellationToken,
    ) {
        let before = got.useful();
        let (candidate, since) = (candidate.clone(), Instant::now());
        let now = ActiveParent { candidate, got, end, since, before, first: before, bps: None };
        self.now.insert(now.candidate.name.clone(), now);
    }

    /// Removes a parent whose leg has ended.
    pub fn end(&mut self, who: &ParentName) {
        if self.now.remove(who).is_some_and(|now| now.has_given()) {
            self.awaited.remove(who);
            // It delivered, so earlier failures no longer count; slowness still does.
            let past = self.past.entry(who.clone()).or_default();
            past.rest = past.rest.take().filter(|rest| rest.why != BackoffReason::Failed);
        }
    }

    /// Removes all parents.
    pub fn forget(&mut self) {
        self.now.clear();
    }

    /// Records that a candidate does not know the cast yet.
    pub fn wait_for(&mut self, who: ParentName) {
        self.awaited.entry(who.clone()).or_insert_with(Instant::now);
        let rest = Backoff {
            wait: AWAITED_INTERVAL,
            until: Instant::now() + AWAITED_INTERVAL,
            why: BackoffReason::Failed,
        };
        self.past.entry(who).or_default().rest = Some(rest);
    }

    /// Records that a candidate failed.
    pub fn fail(&mut self, who: ParentName, is_banned: bool) {
        self.rest(who, if is_banned { BackoffReason::Lies } else { BackoffReason::Failed });
    }

    /// Starts a wait. If a slow parent's leg then ends, that does not shorten its wait.
    fn rest(&mut self, who: ParentName, why: BackoffReason) {
        let now = Instant::now();
        let past = self.past.entry(who).or_default();
        let before = past.rest.take();
        if why == BackoffReason::Failed
            && let Some(rest) =
                before.as_ref().filter(|r| r.why != BackoffReason::Failed && r.until > now)
        {
            let Backoff { wait, until, why } = *rest;
            past.rest = Some(Backoff { wait, until, why });
            return;
        }
        let (first, longest) = match why {
            BackoffReason::Slow => (FIRST_REST, LONGEST_REST),
            BackoffReason::Failed | BackoffReason::Lies => (FIRST_WAIT, LONGEST_WAIT),
        };
        let before = before.filter(|rest| rest.why == why).map(|rest| rest.wait);
        let wait = before.map_or(first, |wait| (2 * wait).min(longest));
        past.rest = Some(Backoff { wait, until: now + wait, why });
    }
}

impl ActiveParent {
    fn has_given(&self) -> bool {
        self.got.useful() > self.first
    }
}

/// A candidate's position in the plan's order.
fn rank(wanted: &Parents, who: &ParentName) -> usize {
    wanted.candidates.iter().position(|c| c.name == *who).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
