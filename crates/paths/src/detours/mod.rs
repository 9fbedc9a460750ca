//! The client's side of detours: the oracle's candidates, and this host's own results with them.
//!
//! One file next to the history holds the oracle's last list, which is used for as long as the oracle is unreachable,
//! and the state of UKAIRO's Algorithm 2 (§3.2.2, [`thalweg_plan::adaptive`]) on it. The client has one list for all
//! destinations, as in the paper; [`crate::history`] holds what is known of single destinations. Like that, the file is
//! only a hint.
//!
//! Several processes may draw and learn at the same time: each keeps its own changes, and on saving replays them, under
//! the file's lock, on the present contents of the file. So nothing is lost or counted twice. The number of unsaved
//! changes is bounded (`MAX_CHANGES`), as in the history.

mod chooser;
mod gain_observations;
mod known_paths;
mod oracle_query;
mod picked_relay;
mod state;
#[cfg(test)]
mod tests;
mod trials;
mod versioned_file;

pub use chooser::DetourChooser;
pub use gain_observations::GainObservations;
pub use known_paths::KnownPaths;
pub use oracle_query::{OracleQueryError, ask_candidates, ask_paths};
pub use picked_relay::{PickedRelay, Reason};
pub use thalweg_plan::adaptive::Draw;

use crate::history::lock;
use serde::{Deserialize, Serialize};
use state::{DetourChange, DetourState};
use std::{
    collections::{BTreeSet, VecDeque},
    io,
    path::{Path, PathBuf},
    time::Duration,
};
use thalweg_base::durable;
use thalweg_units::{Rate, WallTime};
use thalweg_wire::mesh::{
    Name,
    measure::{Candidate, CandidatesReply},
};
use versioned_file::FileContent;

/// s: the number of relays that are drawn for a download, besides the test detour (UKAIRO §2.2.3: "a value of m = 5
/// ensures enough diversity").
pub const CANDIDATES: usize = 5;

/// The most relays that a download tries by default: the candidates, the test detour, and two that were fast to the
/// same server before.
pub const MOST: usize = CANDIDATES + 3;

/// A relay with a lower score is not worth a connection if others gain more; the test detour finds out whether that
/// changes.
pub const LEAST_SCORE: f64 = 0.01;

/// How many relays the oracle is asked for: four times as many as are drawn, so that there is something to learn, and
/// few enough that a load-aware oracle can still separate clients.
pub const LIST: usize = 20;

/// The format that is written and read.
const FORMAT: u32 = 1;

/// The most bytes that are read: 1,024 relays take a quarter of it.
const MAX_BYTES: usize = 1 << 20;

/// The most unsaved changes, the oldest dropped first: one or two for each download.
const MAX_CHANGES: usize = 2_000;

/// How long the oracle counts as unreachable after it did not answer; nobody waits for it in that time.
pub const AWAY: Duration = Duration::from_secs(60);

/// The oracle's list and when it was requested.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RelayList {
    /// By this host's clock.
    pub asked: WallTime,
    pub reply: CandidatesReply,
}

impl RelayList {
    /// How long ago it was requested; zero if that is in the future, as after a correction of the clock.
    pub fn age(&self, now: WallTime) -> Duration {
        age(self.asked, now)
    }

    /// The oracle's entry for this relay.
    pub fn entry(&self, relay: &str) -> Option<&Candidate> {
        self.reply.candidates.iter().find(|c| c.relay.as_str() == relay)
    }
}

/// The state of a relay in this host's list.
#[derive(Clone, Debug, PartialEq)]
pub struct RelayState {
    pub relay: String,
    pub score: f64,
    /// The number of downloads in which it was tried.
    pub tried: u64,
    /// Whether it is the test detour.
    pub is_test: bool,
    /// The oracle's entry for it; `None` if its newest list does not contain it.
    pub oracle: Option<Candidate>,
}

/// The candidates of this host, stored in one file.
#[derive(Debug)]
pub struct Detours {
    file: PathBuf,
    memory: DetourState,
    /// Changes that are not saved yet.
    changes: VecDeque<DetourChange>,
    problem: Option<String>,
}

impl Detours {
    /// The path of the file next to this history: for `history.json` it is `history.detours.json`.
    pub fn beside(history: &Path) -> PathBuf {
        history.with_extension("detours.json")
    }

    /// Creates a state without a file, for a host that stores nothing.
    pub fn unkept() -> Self {
        Self {
            file: PathBuf::new(),
            memory: DetourState::default(),
            changes: VecDeque::new(),
            problem: None,
        }
    }

    /// Reads the file. The state is empty if the file does not exist or cannot be read.
    ///
    /// A corrupt file is moved aside (`FILE.damaged`), a newer program's file is not changed; [`Detours::problem`] then
    /// returns a message.
    pub fn open(file: &Path) -> Self {
        let (memory, problem) = match versioned_file::read::<DetourState>(file, MAX_BYTES, FORMAT) {
            Ok(FileContent::Missing) => (None, None),
            Ok(FileContent::Valid(memory)) => (Some(memory), None),
            Ok(FileContent::Newer(format)) => (None, Some(versioned_file::newer(file, format))),
            Ok(FileContent::Damaged(why)) => (
                None,
                Some(versioned_file::set_aside::<DetourState>(file, &why, MAX_BYTES, FORMAT)),
            ),
            Err(e) => (None, Some(format!("cannot read {}: {e}", file.display()))),
        };
        let memory = memory.unwrap_or_default();
        Self { file: file.to_owned(), memory, changes: VecDeque::new(), problem }
    }

    /// Why data is missing, as a message for the user.
    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// The oracle's last list.
    pub fn relay_list(&self) -> Option<&RelayList> {
        self.memory.listed.as_ref()
    }

    /// Whether the oracle should be asked: there is no list, it is older than its validity allows, or it is dated after
    /// `now`.
    pub fn is_stale(&self, now: WallTime) -> bool {
        let fresh = |l: &RelayList| l.asked <= now && l.age(now) <= l.reply.valid_for;
        !self.relay_list().is_some_and(fresh)
    }

    /// Takes over a list that the oracle gave at `now`, without `me`: a host is not its own candidate.
    pub fn follow(&mut self, mut reply: CandidatesReply, me: Option<&Name>, now: WallTime) {
        reply.candidates.retain(|c| Some(&c.relay) != me);
        reply.candidates.truncate(thalweg_plan::adaptive::MOST_KNOWN);
        self.change(DetourChange::Follow(RelayList { asked: now, reply }));
    }

    /// Records that the oracle was asked at `now` and gave no list.
    pub fn note_unanswered(&mut self, now: WallTime) {
        self.change(DetourChange::Unanswered(now));
    }

    /// Whether the oracle was asked without an answer in the last [`AWAY`], and gave no list since.
    pub fn is_away(&self, now: WallTime) -> bool {
        self.memory.unanswered.is_some_and(|at| at <= now && age(at, now) <= AWAY)
    }

    /// The state of all relays, the best first.
    pub fn relay_states(&self) -> Vec<RelayState> {
        let standing = |k: &thalweg_plan::adaptive::KnownRelay| RelayState {
            relay: k.relay.clone(),
            score: k.score,
            tried: k.tried,
            is_test: self.memory.adaptive.test() == Some(&k.relay),
            oracle: self.relay_list().and_then(|l| l.entry(&k.relay)).cloned(),
        };
        self.memory.adaptive.known().iter().map(standing).collect()
    }

    /// This relay's score; `None` if it is not known.
    pub fn score(&self, relay: &str) -> Option<f64> {
        let known = self.memory.adaptive.known().iter();
        known.filter(|k| k.relay == relay).map(|k| k.score).next()
    }

    /// Picks the relays for a download from the `usable` ones, which are in the roster's order and without those in
    /// quarantine.
    ///
    /// Up to [`CANDIDATES`] + 1 relays are all tried; without a list, the first [`MOST`] are. Otherwise Algorithm 2
    /// draws, and up to two relays are added that `rate` knows to be faster to this server than the direct path.
    pub fn pick(
        &mut self,
        usable: &[String],
        rate: impl Fn(&str) -> Option<Rate>,
        draw: Draw,
    ) -> Vec<PickedRelay> {
        let all = |reason| move |relay: &String| (relay.clone(), reason);
        let picked: Vec<(String, Reason)> = if usable.len() <= CANDIDATES + 1 {
            usable.iter().map(all(Reason::All)).collect()
        } else if self.memory.adaptive.known().is_empty() {
            usable.iter().map(all(Reason::Unranked)).take(MOST).collect()
        } else {
            self.drawn(usable, &rate, draw)
        };
        picked.into_iter().map(|(relay, reason)| self.explained(relay, reason, &rate)).collect()
    }

    fn drawn(
        &mut self,
        usable: &[String],
        rate: &impl Fn(&str) -> Option<Rate>,
        draw: Draw,
    ) -> Vec<(String, Reason)> {
        let open: BTreeSet<&str> = usable.iter().map(String::as_str).collect();
        let names = self.memory.adaptive.known().iter().map(|k| k.relay.clone());
        let barred: BTreeSet<String> = names.filter(|n| !open.contains(n.as_str())).collect();
        let seed = seed();
        let before = self.memory.adaptive.test().map(str::to_owned);
        let names = self.memory.draw(CANDIDATES, draw, &barred, seed);
        let test = self.memory.adaptive.test().map(str::to_owned);
        if before != test {
            self.remember(DetourChange::Draw { s: CANDIDATES, draw, barred, seed });
        }
        let reason =
            |n: &String| if Some(n) == test.as_ref() { Reason::Test } else { Reason::Drawn };
        let is_short = names.len() <= CANDIDATES;
        let mut picked: Vec<_> = names.iter().map(|n| (n.clone(), reason(n))).collect();
        self.drop_relays_without_gain(&mut picked);
        let taken = |picked: &[(String, Reason)], n: &String| picked.iter().any(|(p, _)| p == n);
        // The list is short, or many of its relays cannot be used.
        for name in usable {
            if is_short && picked.len() <= CANDIDATES && !taken(&picked, name) {
                picked.push((name.clone(), Reason::Unranked));
            }
        }
        let mut here: Vec<_> = usable.iter().filter_map(|n| Some((rate(n)?, n))).collect();
        here.retain(|(r, n)| rate("direct").is_none_or(|d| *r > d) && !taken(&picked, n));
        here.sort_by_key(|(rate, _)| std::cmp::Reverse(*rate));
        picked.extend(here.into_iter().map(|(_, n)| (n.clone(), Reason::Here)));
        picked.truncate(MOST);
        picked
    }

    /// Removes relays without a gain if others are known to gain: they would only take sampling's bandwidth from those
    /// and from other clients. Differs from the paper, which draws s relays whatever their scores, but whose candidates
    /// would not have a score of 0.
    fn drop_relays_without_gain(&self, picked: &mut Vec<(String, Reason)>) {
        let gains = |n: &String| self.score(n).is_some_and(|score| score >= LEAST_SCORE);
        if picked.iter().any(|(n, _)| gains(n)) {
            picked.retain(|(n, reason)| *reason == Reason::Test || gains(n));
        }
    }

    fn explained(
        &self,
        relay: String,
        reason: Reason,
        rate: &impl Fn(&str) -> Option<Rate>,
    ) -> PickedRelay {
        let known = self.memory.adaptive.known().iter().find(|k| k.relay == relay);
        PickedRelay {
            reason,
            score: known.map(|k| k.score),
            evidence: self.relay_list().and_then(|l| l.entry(&relay)).map(|c| c.evidence),
            tried: known.map(|k| k.tried),
            rate: rate(&relay),
            relay,
        }
    }

    /// Learns each relay's gain over the direct path in a download; see [`GainObservations`].
    pub fn learn(&mut self, gains: Vec<(String, f64)>) {
        if !gains.is_empty() {
            self.change(DetourChange::Learn { gains, seed: seed() });
        }
    }

    /// Forgets everything, including what other processes save before the next [`Detours::save`].
    pub fn clear(&mut self) {
        self.change(DetourChange::Clear);
    }

    /// Saves the changes on top of what other processes wrote meanwhile. Does nothing without changes. May block for
    /// half a second. The directory must exist.
    ///
    /// # Errors
    /// If the file cannot be written (`WouldBlock`: another process holds the lock). The changes are kept for the next
    /// attempt.
    pub fn save(&mut self) -> io::Result<()> {
        if self.changes.is_empty() {
            return Ok(());
        }
        let _lock = lock(&self.file)?;
        let memory = match versioned_file::read::<DetourState>(&self.file, MAX_BYTES, FORMAT)? {
            FileContent::Valid(theirs) => self.replayed(theirs),
            FileContent::Missing => self.replayed(DetourState::default()),
            FileContent::Damaged(_) => {
                // If it cannot be moved aside, it is replaced.
                _ = durable::set_aside(&self.file);
                self.memory.clone()
            }
            FileContent::Newer(format) => {
                self.problem = Some(versioned_file::newer(&self.file, format));
                return Ok(());
            }
        };
        versioned_file::write(&self.file, &memory, FORMAT)?;
        self.memory = memory;
        self.changes.clear();
        Ok(())
    }

    /// Takes the unsaved changes as a separate value, so that a thread that may block can save it while this one is
    /// used. `None` if there are no changes. They count as saved here until [`Detours::take_back`].
    pub fn unsaved(&mut self) -> Option<Self> {
        if self.changes.is_empty() {
            return None;
        }
        let (file, memory) = (self.file.clone(), self.memory.clone());
        let changes = std::mem::take(&mut self.changes);
        Some(Self { file, memory, changes, problem: None })
    }

    /// Takes back the value of [`Detours::unsaved`]: the present contents of the file, and the changes if they could
    /// not be saved.
    pub fn take_back(&mut self, other: Self) {
        let later = std::mem::take(&mut self.changes);
        self.memory = other.memory;
        self.changes = other.changes;
        self.problem = other.problem.or(self.problem.take());
        later.into_iter().for_each(|change| self.change(change));
    }

    fn replayed(&self, mut theirs: DetourState) -> DetourState {
        self.changes.iter().for_each(|change| theirs.apply(change));
        theirs
    }

    fn change(&mut self, change: DetourChange) {
        self.memory.apply(&change);
        self.remember(change);
    }

    fn remember(&mut self, change: DetourChange) {
        if self.changes.len() == MAX_CHANGES {
            self.changes.pop_front();
        }
        self.changes.push_back(change);
    }
}

/// The time from `since` to `now`; zero if `since` is later.
fn age(since: WallTime, now: WallTime) -> Duration {
    Duration::from_nanos(now.as_unix_nanos().saturating_sub(since.as_unix_nanos()))
}

/// A random seed for draws.
fn seed() -> u64 {
    let mut seed = [0; 8];
    // Without randomness the draws are the same each time, which is acceptable.
    _ = getrandom::fill(&mut seed);
    u64::from_le_bytes(seed)
}
