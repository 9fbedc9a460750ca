//! Applications and how many bytes their connections move (DBAS §II-B).

use crate::{Demand, Nature};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The maximum number of remembered applications. The one whose last connection ended longest ago is forgotten first.
const MAX_APPLICATIONS: usize = 4096;

/// The expected bytes of a connection while nothing at all is known: an object of a web page, the paper's λ_small
/// (§IV-A).
const FIRST_GUESS: u64 = 22_380;

/// The minimum that is expected of a bulk program (§II-B.1) while nothing is known of itself, bytes: the paper's
/// λ_large (§IV-A).
const BULK_GUESS: u64 = 285_000;

/// The origin of connections: a process by its name if that is visible, and the destination's port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Application {
    /// The process, if it is known.
    pub process: Option<String>,
    /// The destination's port.
    pub port: u16,
}

impl Application {
    pub fn nature(&self) -> Nature {
        Nature::classify(self.process.as_deref(), self.port)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    demand: Demand,
    /// The number of its connection that ended last, counted over all applications.
    last: u64,
}

/// C_demand of each application; the local database of §II-B.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applications {
    entries: Vec<(Application, Entry)>,
    #[serde(skip)]
    places: BTreeMap<Application, usize>,
    /// The connections of all applications together: the guess for a new application.
    all: Demand,
}

impl Applications {
    /// Records that a connection ended which moved this many bytes.
    pub fn record_connection(&mut self, application: &Application, bytes: u64) {
        self.all.record_connection(bytes);
        let last = self.all.connections();
        let at = self.place(application);
        let entry = &mut self.entries[at].1;
        entry.demand.record_connection(bytes);
        entry.last = last;
    }

    /// The bytes that its next connection is expected to move: its own C_demand, that of all applications, or an object
    /// of a web page while nothing is known. Without its own C_demand, an application of [`Nature::Bulk`] is expected
    /// to move no less than a large file.
    pub fn expected(&self, application: &Application) -> u64 {
        let own = self.demand(application).and_then(|demand| demand.bytes());
        own.unwrap_or_else(|| {
            let guess = self.all.bytes().unwrap_or(FIRST_GUESS);
            match application.nature() {
                Nature::Bulk => guess.max(BULK_GUESS),
                Nature::Realtime | Nature::Unknown => guess,
            }
        })
    }

    /// The C_demand of an application.
    pub fn demand(&self, application: &Application) -> Option<Demand> {
        let found = |(known, _): &&(Application, Entry)| known == application;
        let entry = match self.places.len() == self.entries.len() {
            true => self.places.get(application).and_then(|at| self.entries.get(*at)),
            // The index is empty after the entries were read from a file.
            false => self.entries.iter().find(found),
        };
        entry.map(|(_, entry)| entry.demand)
    }

    /// All known applications, the last used first.
    pub fn all(&self) -> Vec<(&Application, Demand)> {
        let mut all: Vec<_> = self.entries.iter().collect();
        all.sort_by_key(|(_, entry)| std::cmp::Reverse(entry.last));
        all.into_iter().map(|(application, entry)| (application, entry.demand)).collect()
    }

    fn place(&mut self, application: &Application) -> usize {
        if self.places.len() != self.entries.len() {
            let places = self.entries.iter().enumerate();
            self.places = places.map(|(at, (known, _))| (known.clone(), at)).collect();
        }
        if let Some(at) = self.places.get(application) {
            return *at;
        }
        let new = (application.clone(), Entry::default());
        let at = match self.entries.len() < MAX_APPLICATIONS {
            true => {
                self.entries.push(new);
                self.entries.len() - 1
            }
            false => {
                let quietest = self.entries.iter().enumerate().min_by_key(|(_, (_, e))| e.last);
                let at = quietest.map_or(0, |(at, _)| at);
                self.places.remove(&self.entries[at].0);
                self.entries[at] = new;
                at
            }
        };
        self.places.insert(application.clone(), at);
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn app(process: &str, port: u16) -> Application {
        Application { process: Some(process.to_owned()), port }
    }

    #[test]
    fn a_new_application_is_expected_to_be_like_the_others() {
        let mut all = Applications::default();
        assert_eq!(all.expected(&app("a", 1)), FIRST_GUESS);
        all.record_connection(&app("a", 1), 1000);
        assert_eq!((all.expected(&app("a", 1)), all.expected(&app("b", 1))), (1000, 1000));
        all.record_connection(&app("b", 1), 9000);
        assert_eq!((all.expected(&app("a", 1)), all.expected(&app("b", 1))), (1000, 9000));
        assert_eq!(all.all()[0].0, &app("b", 1));
    }

    #[test]
    fn a_bulk_program_is_expected_to_move_much_until_it_is_known_itself() {
        let (mut all, rsync) = (Applications::default(), app("rsync", 873));
        assert_eq!(all.expected(&rsync), BULK_GUESS);
        all.record_connection(&app("a", 1), 1000);
        assert_eq!((all.expected(&rsync), all.expected(&app("b", 1))), (BULK_GUESS, 1000));
        all.record_connection(&app("c", 1), 80_000_000);
        assert!(all.expected(&rsync) > BULK_GUESS);
        all.record_connection(&rsync, 2000);
        assert_eq!(all.expected(&rsync), 2000);
    }

    #[test]
    fn the_application_that_was_quiet_longest_is_forgotten_first() {
        let mut all = Applications::default();
        for port in 0..=u16::try_from(MAX_APPLICATIONS).unwrap() {
            all.record_connection(&app("a", port), u64::from(port));
            all.record_connection(&app("always", 1), 7);
        }
        assert_eq!(all.entries.len(), MAX_APPLICATIONS);
        assert_eq!(all.demand(&app("a", 0)), None);
        assert!(all.demand(&app("a", 4096)).is_some());
        assert_eq!(all.expected(&app("always", 1)), 7);
    }
}
