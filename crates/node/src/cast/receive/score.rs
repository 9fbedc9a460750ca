//! Which of a receiver's candidates are its parents now, and which of them next.

use super::reception::{Parents, Who};
use crate::cast::leg::child::Got;
use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};
use thalweg_wire::cast::{Candidate, Fault, Want};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The first wait before a parent that failed is tried again; twice as long each time.
const FIRST_WAIT: Duration = Duration::from_millis(500);

/// The longest.
const LONGEST_WAIT: Duration = Duration::from_secs(20);

/// A better parent that does not know the cast yet is waited for so long in all before another
/// takes its place: the source reaches all receivers within a few round trips.
const PLACE_HELD: Duration = Duration::from_secs(3);

/// And asked again so often.
const KNOCK: Duration = Duration::from_millis(200);

/// Over such spans it is judged whether a parent is slow: connections have grown by then.
const SPAN: Duration = Duration::from_secs(4);

/// A parent that gives less than one part in so many of what is expected of it is slow, if another
/// is expected to give twice as much.
const SLOW: u64 = 4;

/// Parents of now, and what is remembered of others.
#[derive(Debug, Default)]
pub struct Score {
    now: BTreeMap<Who, Now>,
    failed: BTreeMap<Who, Failure>,
    /// Since when a candidate is waited for that does not know the cast.
    awaited: BTreeMap<Who, Instant>,
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
}

#[derive(Debug)]
struct Failure {
    wait: Duration,
    until: Instant,
    /// It sent what the digests do not allow.
    is_banned: bool,
}

impl Score {
    /// Who is to be begun now. A better candidate than the worst parent is begun beside it; see
    /// [`Score::review`].
    pub fn next(&self, wanted: &Parents) -> Vec<Candidate> {
        let now = Instant::now();
        let mut places = wanted.at_once;
        let mut next = Vec::new();
        for candidate in wanted.candidates.iter().filter(|c| c.want == Want::Pull) {
            if places == 0 {
                break;
            }
            let who = &candidate.name;
            let rests = self.failed.get(who).is_some_and(|f| f.is_banned || f.until > now);
            let is_now = self.now.contains_key(who);
            let since = self.awaited.get(who);
            let is_awaited = since.is_some_and(|since| now.duration_since(*since) < PLACE_HELD);
            if !rests && !is_now {
                next.push(candidate.clone());
            }
            places -= usize::from(!rests || is_now || is_awaited);
        }
        next
    }

    /// Ends parents that are not wanted any more, as better ones give something; and says which are
    /// to be left as slow.
    pub fn review(&mut self, wanted: &Parents) -> Vec<(Who, (Fault, String))> {
        let rank = |who: &Who| wanted.candidates.iter().position(|c| c.name == *who);
        let mut all: Vec<(usize, Who)> = Vec::new();
        for who in self.now.keys() {
            all.push((rank(who).unwrap_or(usize::MAX), who.clone()));
        }
        all.sort();
        let gives = |who: &Who| self.now.get(who).is_some_and(Now::has_given);
        let is_served = all.iter().take(wanted.at_once).all(|(_, who)| gives(who));
        if all.len() > wanted.at_once && is_served {
            for (_, who) in all.drain(wanted.at_once..) {
                self.now.get(&who).inspect(|now| now.end.cancel());
            }
        }
        let slow: Vec<_> = all.into_iter().filter_map(|(_, who)| self.slow(who, wanted)).collect();
        for (who, _) in &slow {
            self.now.get(who).inspect(|now| now.end.cancel());
        }
        slow
    }

    fn slow(&mut self, who: Who, wanted: &Parents) -> Option<(Who, (Fault, String))> {
        let at = Instant::now();
        let is_free = |c: &&Candidate| {
            let rests = self.failed.get(&c.name).is_some_and(|f| f.is_banned || f.until > at);
            !self.now.contains_key(&c.name) && !rests
        };
        let other = wanted.candidates.iter().filter(is_free).filter_map(|c| c.bps).max();
        let now = self.now.get_mut(&who)?;
        let span = at.duration_since(now.since);
        if span < SPAN {
            return None;
        }
        let bytes = now.got.bytes.load(Relaxed);
        let bps = ((bytes - now.before) as f64 * 8.0 / span.as_secs_f64()) as u64;
        (now.since, now.before) = (at, bytes);
        let expected = now.candidate.bps?;
        let is_slow = bps < expected / SLOW && other? > 2 * bps;
        let why = format!("it gives {bps} bit/s where {expected} were expected");
        is_slow.then_some((who, (Fault::Slow, why)))
    }

    /// One more parent.
    pub fn begin(&mut self, candidate: &Candidate, got: Arc<Got>, end: CancellationToken) {
        let before = got.bytes.load(Relaxed);
        let (candidate, since) = (candidate.clone(), Instant::now());
        let now = Now { candidate, got, end, since, before, first: before };
        self.now.insert(now.candidate.name.clone(), now);
    }

    /// Its leg has ended.
    pub fn ended(&mut self, who: &Who) {
        if self.now.remove(who).is_some_and(|now| now.has_given()) {
            // It is as good as new.
            self.awaited.remove(who);
            self.failed.remove(who);
        }
    }

    /// All legs have.
    pub fn forget(&mut self) {
        self.now.clear();
    }

    /// It does not know the cast yet.
    pub fn wait_for(&mut self, who: Who) {
        self.awaited.entry(who.clone()).or_insert_with(Instant::now);
        let until = Instant::now() + KNOCK;
        self.failed.insert(who, Failure { wait: KNOCK, until, is_banned: false });
    }

    /// It failed.
    pub fn fail(&mut self, who: Who, is_banned: bool) {
        let before = self.failed.get(&who).map(|failed| failed.wait);
        let wait = before.map_or(FIRST_WAIT, |wait| (2 * wait).min(LONGEST_WAIT));
        let until = Instant::now() + wait;
        self.failed.insert(who, Failure { wait, until, is_banned });
    }
}

impl Now {
    fn has_given(&self) -> bool {
        self.got.bytes.load(Relaxed) > self.first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(name: &str) -> Who {
        (name != "source").then(|| name.parse().unwrap())
    }

    fn wanted(names: &[(&str, u64)], at_once: usize) -> Parents {
        let candidate = |(name, mbps): &(&str, u64)| Candidate {
            name: who(name),
            bps: Some(mbps * 1_000_000),
            want: Want::Pull,
        };
        Parents { candidates: names.iter().map(candidate).collect(), at_once }
    }

    fn begin(score: &mut Score, wanted: &Parents) -> Vec<(Who, Arc<Got>)> {
        let next = score.next(wanted);
        let begun = next.iter().map(|candidate| {
            let got = Arc::new(Got::default());
            score.begin(candidate, got.clone(), CancellationToken::new());
            (candidate.name.clone(), got)
        });
        begun.collect()
    }

    fn names(begun: &[(Who, Arc<Got>)]) -> Vec<Who> {
        begun.iter().map(|(who, _)| who.clone()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_takes_the_place_of_one_that_failed_until_that_may_be_tried_again() {
        let (mut score, wanted) =
            (Score::default(), wanted(&[("a", 9), ("b", 5), ("source", 1)], 1));
        assert_eq!(names(&begin(&mut score, &wanted)), [who("a")]);
        score.ended(&who("a"));
        score.fail(who("a"), false);
        let b = begin(&mut score, &wanted);
        assert_eq!(names(&b), [who("b")]);
        assert_eq!(begin(&mut score, &wanted).len(), 0);
        tokio::time::advance(FIRST_WAIT).await;
        // Begun beside, until it gives something.
        let a = begin(&mut score, &wanted);
        assert_eq!(names(&a), [who("a")]);
        assert_eq!(score.review(&wanted), []);
        assert!(!score.now[&who("b")].end.is_cancelled());
        a[0].1.bytes.store(1, Relaxed);
        assert_eq!(score.review(&wanted), []);
        assert!(
            score.now[&who("b")].end.is_cancelled() && !score.now[&who("a")].end.is_cancelled()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn who_does_not_know_the_cast_yet_keeps_its_place_for_a_while() {
        let (mut score, wanted) = (Score::default(), wanted(&[("a", 9), ("source", 1)], 1));
        let began = Instant::now();
        let mut tries = 0;
        let other = loop {
            let begun = names(&begin(&mut score, &wanted));
            if begun == [who("source")] {
                break began.elapsed();
            }
            if begun == [who("a")] {
                tries += 1;
                score.ended(&who("a"));
                score.wait_for(who("a"));
            }
            tokio::time::advance(Duration::from_millis(100)).await;
        };
        assert!(other >= PLACE_HELD && tries >= 10, "{other:?}, {tries}");
    }

    #[tokio::test(start_paused = true)]
    async fn liars_are_not_asked_again_and_slow_ones_are_left_for_faster() {
        let (mut score, wanted) = (Score::default(), wanted(&[("a", 9), ("b", 8), ("c", 1)], 1));
        begin(&mut score, &wanted);
        score.ended(&who("a"));
        score.fail(who("a"), true);
        tokio::time::advance(10 * LONGEST_WAIT).await;
        let b = begin(&mut score, &wanted);
        assert_eq!(names(&b), [who("b")]);
        tokio::time::advance(SPAN).await;
        b[0].1.bytes.store(50_000, Relaxed);
        // 100 kbit/s of 8 Mbit/s.
        let left = score.review(&wanted);
        assert_eq!(left.len(), 1);
        assert_eq!((&left[0].0, left[0].1.0), (&who("b"), Fault::Slow));
    }
}
