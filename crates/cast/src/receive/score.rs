//! Which of a receiver's candidates are its parents now, and which of them next.
//!
//! The plan's order is followed as long as parents do what is expected. Who fails is tried again after
//! a while. Who is slow makes room for another that is expected, or was seen, to give more; when it
//! comes back, and when one is tried that nothing is known of, it is on trial: one more parent than
//! wanted for one span, and then the one that gave less is left. Pulling from one more costs nothing
//! twice: each symbol is asked of one.

use super::reception::{Parents, Who};
use crate::leg::child::Got;
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use thalweg_wire::cast::{Candidate, Fault, Want};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The first wait before a parent that failed is tried again; twice as long each time.
const FIRST_WAIT: Duration = Duration::from_millis(500);

/// The longest.
const LONGEST_WAIT: Duration = Duration::from_secs(20);

/// The first wait before one that was slow is tried again; twice as long each time.
const FIRST_REST: Duration = Duration::from_secs(20);

/// The longest.
const LONGEST_REST: Duration = Duration::from_secs(160);

/// A better parent that does not know the cast yet is waited for so long in all before another
/// takes its place: the source reaches all receivers within a few round trips.
const PLACE_HELD: Duration = Duration::from_secs(3);

/// And asked again so often.
const KNOCK: Duration = Duration::from_millis(200);

/// Over such spans it is judged whether a parent is slow: connections have grown by then.
const SPAN: Duration = Duration::from_secs(4);

/// Once it has given something for a span it is judged over such ones: a connection that came to a stand is not
/// the network's growing. `cast-reconfigure` lost twelve seconds to spans of four.
const LATER: Duration = Duration::from_secs(2);

/// A parent that gives less than one part in so many of what is expected of it is slow, if another
/// gives twice as much.
const SLOW: u64 = 4;

/// Where no plan knows what to expect, one that nothing is known of is tried so often at most.
const TRY: Duration = Duration::from_secs(15);

/// So long it is remembered what a parent gave.
const MEMORY: Duration = Duration::from_secs(60);

/// Parents of now, and what is remembered of others.
#[derive(Debug, Default)]
pub struct Score {
    now: BTreeMap<Who, Now>,
    past: BTreeMap<Who, Past>,
    /// Since when a candidate is waited for that does not know the cast.
    awaited: BTreeMap<Who, Instant>,
    /// Who is on trial.
    trial: Option<Who>,
    /// When the last trial began.
    tried: Option<Instant>,
}

#[derive(Debug)]
struct Now {
    candidate: Candidate,
    got: Arc<Got>,
    end: CancellationToken,
    /// Where the span began, and what had come by then.
    since: Instant,
    before: u64,
    /// What had come when it became a parent.
    first: u64,
    /// Bits a second over the last whole span; none: there was none yet.
    bps: Option<u64>,
}

/// What is remembered of a candidate.
#[derive(Debug, Default)]
struct Past {
    rest: Option<Rest>,
    /// Bits a second that it gave, and until when.
    gave: Option<(u64, Instant)>,
}

/// A candidate that is not turned to for now.
#[derive(Debug)]
struct Rest {
    wait: Duration,
    until: Instant,
    why: Why,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    Failed,
    /// It is turned to before its time if nobody else is there.
    Slow,
    /// It sent what the digests do not allow.
    Lies,
}

impl Score {
    /// Who is to be begun now. A better candidate than the worst parent is begun beside it; see
    /// [`Score::review`].
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
            let is_awaited = since.is_some_and(|since| now.duration_since(*since) < PLACE_HELD);
            let is_back = !rests && !is_now && self.was_slow(who);
            if is_back && self.now.len() >= wanted.at_once {
                // It is beside the others until it is known whether it does better now.
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

    fn rests(&self, who: &Who) -> bool {
        let rest = self.past.get(who).and_then(|past| past.rest.as_ref());
        rest.is_some_and(|rest| rest.why == Why::Lies || rest.until > Instant::now())
    }

    fn was_slow(&self, who: &Who) -> bool {
        let rest = self.past.get(who).and_then(|past| past.rest.as_ref());
        rest.is_some_and(|rest| rest.why == Why::Slow)
    }

    /// Those that rest as they were slow: better than nobody.
    fn slow_ones(&self, wanted: &Parents) -> Vec<Candidate> {
        let is_one = |c: &&Candidate| {
            let is_free = !self.now.contains_key(&c.name);
            is_free && self.was_slow(&c.name) && self.rests(&c.name)
        };
        wanted.candidates.iter().filter(is_one).cloned().collect()
    }

    /// One to be tried, where nobody knows what to expect.
    fn unknown_one(&mut self, wanted: &Parents) -> Option<Candidate> {
        let is_time = self.tried.is_none_or(|tried| tried.elapsed() >= TRY);
        let worst = self.worst(None)?;
        let is_as_planned = |expected: u64| worst.bps.is_some_and(|bps| bps >= expected / SLOW);
        let all_judged = self.now.values().all(|now| now.bps.is_some());
        if !is_time
            || !all_judged
            || self.trial.is_some()
            || worst.candidate.bps.is_some_and(is_as_planned)
        {
            return None;
        }
        let is_unknown = |c: &&Candidate| {
            let is_free = c.want == Want::Pull && !self.now.contains_key(&c.name);
            is_free && !self.rests(&c.name) && self.esteem(c).is_none()
        };
        let found = wanted.candidates.iter().find(is_unknown).cloned()?;
        self.begin_trial(&found.name);
        Some(found)
    }

    fn begin_trial(&mut self, who: &Who) {
        (self.trial, self.tried) = (Some(who.clone()), Some(Instant::now()));
    }

    /// What a candidate is thought to give: what it gave lately, or what the plan says.
    fn esteem(&self, candidate: &Candidate) -> Option<u64> {
        let gave = self.past.get(&candidate.name).and_then(|past| past.gave);
        let gave = gave.filter(|(_, until)| *until > Instant::now()).map(|(bps, _)| bps);
        gave.or(candidate.bps)
    }

    /// The parent that gives least, but for this one.
    fn worst(&self, but: Option<&Who>) -> Option<&Now> {
        let others = self.now.values().filter(|now| Some(&now.candidate.name) != but);
        others.min_by_key(|now| now.bps)
    }

    /// Ends parents that are not wanted any more, as better ones give something; and says which are
    /// to be left as slow.
    pub fn review(&mut self, wanted: &Parents) -> Vec<(Who, (Fault, String))> {
        let judged = self.judge();
        let mut all: Vec<(usize, Who)> = Vec::new();
        for who in self.now.keys().filter(|who| Some(*who) != self.trial.as_ref()) {
            all.push((rank(wanted, who), who.clone()));
        }
        all.sort();
        let gives = |who: &Who| self.now.get(who).is_some_and(Now::has_given);
        let is_served = all.iter().take(wanted.at_once).all(|(_, who)| gives(who));
        if all.len() > wanted.at_once && is_served {
            for (_, who) in all.drain(wanted.at_once..) {
                self.now.get(&who).inspect(|now| now.end.cancel());
            }
        }
        let mut left: Vec<_> = self.concluded(wanted).into_iter().collect();
        for who in judged.into_iter().filter(|who| all.iter().any(|(_, other)| other == who)) {
            left.extend(self.slow(who, wanted));
        }
        for (who, _) in &left {
            self.now.get(who).inspect(|now| now.end.cancel());
            self.rest(who.clone(), Why::Slow);
        }
        left
    }

    /// Ends spans; whose.
    fn judge(&mut self) -> Vec<Who> {
        let at = Instant::now();
        let mut judged = Vec::new();
        for (who, now) in &mut self.now {
            let span = at.duration_since(now.since);
            let enough = if now.bps.is_some() { LATER } else { SPAN };
            if span < enough {
                continue;
            }
            let bytes = now.got.useful();
            let bps = (bytes.saturating_sub(now.before) as f64 * 8.0 / span.as_secs_f64()) as u64;
            (now.since, now.before, now.bps) = (at, bytes, Some(bps));
            self.past.entry(who.clone()).or_default().gave = Some((bps, at + MEMORY));
            judged.push(who.clone());
        }
        judged
    }

    /// The parent that a finished trial has shown to be the worse one.
    fn concluded(&mut self, wanted: &Parents) -> Option<(Who, (Fault, String))> {
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
        // The plan's order has reasons that one receiver does not see.
        let is_better = match is_planned && rank(wanted, &who) < rank(wanted, &other) {
            true => tried.saturating_mul(2) >= gave,
            false => tried > gave.saturating_add(gave / 2),
        };
        let (loser, gives, more) =
            if is_better { (other, gave, tried) } else { (who, tried, gave) };
        let why = format!("it gives {gives} bit/s where another gives {more}");
        Some((loser, (Fault::Slow, why)))
    }

    fn slow(&self, who: Who, wanted: &Parents) -> Option<(Who, (Fault, String))> {
        let now = self.now.get(&who)?;
        let bps = now.bps?;
        let is_free = |c: &&Candidate| !self.now.contains_key(&c.name) && !self.rests(&c.name);
        let free = wanted.candidates.iter().filter(is_free);
        let other = free.filter_map(|c| self.esteem(c)).max()?;
        let all: Vec<u64> = self.now.values().filter_map(|now| now.bps).collect();
        let total: u64 = all.iter().sum();
        // Several that fill this host's own line give each a part of it, and none is slow.
        let is_far_behind = bps.saturating_mul(2 * all.len() as u64) < total || total < other;
        let expected = now.candidate.bps.unwrap_or(other);
        let is_slow = bps < expected / SLOW && other > 2 * bps && is_far_behind;
        let why = format!("it gives {bps} bit/s where {expected} were expected");
        is_slow.then_some((who, (Fault::Slow, why)))
    }

    /// One more parent.
    pub fn begin(&mut self, candidate: &Candidate, got: Arc<Got>, end: CancellationToken) {
        let before = got.useful();
        let (candidate, since) = (candidate.clone(), Instant::now());
        let now = Now { candidate, got, end, since, before, first: before, bps: None };
        self.now.insert(now.candidate.name.clone(), now);
    }

    /// Its leg has ended.
    pub fn ended(&mut self, who: &Who) {
        if self.now.remove(who).is_some_and(|now| now.has_given()) {
            self.awaited.remove(who);
            // It is as good as new, if it was not left as slow.
            let past = self.past.entry(who.clone()).or_default();
            past.rest = past.rest.take().filter(|rest| rest.why != Why::Failed);
        }
    }

    /// All legs have.
    pub fn forget(&mut self) {
        self.now.clear();
    }

    /// It does not know the cast yet.
    pub fn wait_for(&mut self, who: Who) {
        self.awaited.entry(who.clone()).or_insert_with(Instant::now);
        let rest = Rest { wait: KNOCK, until: Instant::now() + KNOCK, why: Why::Failed };
        self.past.entry(who).or_default().rest = Some(rest);
    }

    /// It failed.
    pub fn fail(&mut self, who: Who, is_banned: bool) {
        self.rest(who, if is_banned { Why::Lies } else { Why::Failed });
    }

    /// From now on, for a while; one that was slow does not rest shorter as its leg ends.
    fn rest(&mut self, who: Who, why: Why) {
        let now = Instant::now();
        let past = self.past.entry(who).or_default();
        let before = past.rest.take();
        if why == Why::Failed
            && let Some(rest) = before.as_ref().filter(|r| r.why != Why::Failed && r.until > now)
        {
            let Rest { wait, until, why } = *rest;
            past.rest = Some(Rest { wait, until, why });
            return;
        }
        let (first, longest) = match why {
            Why::Slow => (FIRST_REST, LONGEST_REST),
            Why::Failed | Why::Lies => (FIRST_WAIT, LONGEST_WAIT),
        };
        let before = before.filter(|rest| rest.why == why).map(|rest| rest.wait);
        let wait = before.map_or(first, |wait| (2 * wait).min(longest));
        past.rest = Some(Rest { wait, until: now + wait, why });
    }
}

impl Now {
    fn has_given(&self) -> bool {
        self.got.useful() > self.first
    }
}

/// Its place in the plan's order.
fn rank(wanted: &Parents, who: &Who) -> usize {
    wanted.candidates.iter().position(|c| c.name == *who).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
