//! Collects what is known of paths: the oracle's answer or its stored copy, and this host's own measurements.

use crate::commands::{history_file, host::StateDir};
use parking_lot::Mutex;
use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};
use thalweg_mesh::State;
use thalweg_net::DialOptions;
use thalweg_paths::{
    detours::{Detours, KnownPaths, OracleQueryError, ask_candidates, ask_paths},
    history::History,
};
use thalweg_plan::{Graph, graph::MAX_AGE};
use thalweg_units::{Rate, WallTime};
use thalweg_wire::mesh::{
    Name, Role, Roster,
    measure::{CandidatesReply, PathsReply},
};

/// The timeout for the oracle's answers.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Everything known of paths.
pub struct PathKnowledge {
    /// This host's name in the mesh.
    pub me: Name,
    /// The stored roster, if there is one.
    pub roster: Option<Arc<Roster>>,
    /// The oracle's rates of paths.
    pub paths: Option<KnownPaths>,
    /// The candidates, and what was learnt about them.
    pub detours: Detours,
    /// What earlier transfers measured.
    pub history: Arc<Mutex<History>>,
    /// Why there is no new answer from the oracle.
    pub trouble: Option<String>,
    /// Remarks for people about faults.
    pub notes: Vec<String>,
    /// The time to which all ages refer.
    pub now: WallTime,
}

impl PathKnowledge {
    /// Asks the oracle and stores its answer. Without an answer, the stored one is used.
    ///
    /// # Errors
    /// If this host is in no mesh, or its state cannot be read.
    pub async fn ask(
        state: &State,
        history: Option<&Path>,
        state_dir: &StateDir,
    ) -> anyhow::Result<Self> {
        let me = state.mesh()?.name;
        let file = history_file::file(history, state_dir);
        let mut found = Self::stored(me, file.as_deref());
        found.roster = state.membership().ok().and_then(|m| m.current());
        let (candidates, paths) = tokio::join!(
            ask_candidates(state, DialOptions::default(), TIMEOUT),
            ask_paths(state, TIMEOUT)
        );
        found.take(candidates, paths, file.as_deref());
        Ok(found)
    }

    /// Reads what is stored on this host.
    pub fn stored(me: Name, file: Option<&Path>) -> Self {
        let (mut paths, mut notes) = (None, Vec::new());
        if let Some(file) = file {
            let (known, problem) = KnownPaths::load(&KnownPaths::beside(file));
            paths = known;
            notes.extend(problem);
        }
        let detours = file.map_or_else(Detours::unkept, |f| Detours::open(&Detours::beside(f)));
        let history = History::open(file.unwrap_or(Path::new("")));
        notes.extend(detours.problem().map(str::to_owned));
        notes.extend(history.problem().filter(|_| file.is_some()).map(str::to_owned));
        Self {
            me,
            roster: None,
            paths,
            detours,
            history: Arc::new(Mutex::new(history)),
            trouble: None,
            notes,
            now: history_file::now(),
        }
    }

    /// Takes and stores the oracle's answers.
    pub fn take(
        &mut self,
        candidates: Result<CandidatesReply, OracleQueryError>,
        paths: Result<PathsReply, OracleQueryError>,
        file: Option<&Path>,
    ) {
        let mut kept = Vec::new();
        match candidates {
            Ok(reply) => {
                self.detours.follow(reply, Some(&self.me), self.now);
                kept.push(file.map_or(Ok(()), |_| self.detours.save()));
            }
            Err(e) => self.trouble = Some(e.to_string()),
        }
        match paths {
            Ok(reply) => {
                let known = KnownPaths::new(reply, self.now);
                kept.push(file.map_or(Ok(()), |f| known.keep(&KnownPaths::beside(f))));
                self.paths = Some(known);
            }
            Err(e) => self.trouble = Some(e.to_string()),
        }
        let unkept = kept.into_iter().filter_map(Result::err);
        self.notes.extend(unkept.map(|e| format!("cannot store the oracle's answer: {e}")));
        if let Some(why) = &self.trouble {
            self.notes.push(format!("no new answer from the oracle: {why}"));
        }
    }

    /// Why nothing is known.
    pub fn missing_reason(&self) -> String {
        let said = "the oracle has not measured anything yet".to_owned();
        self.trouble.clone().unwrap_or(said)
    }

    /// The nodes of the matrix, by name.
    pub fn names(&self) -> Vec<&Name> {
        self.paths.iter().flat_map(|p| &p.reply.nodes).collect()
    }

    /// The rates that plans can use: exact ones that are not too old, between nodes of the matrix.
    pub fn graph(&self) -> Graph {
        let mut graph = Graph::new(self.names().len());
        let Some(paths) = &self.paths else { return graph };
        let since = paths.age(self.now);
        let usable = |leg: &&thalweg_wire::mesh::measure::LegEntry| {
            !leg.at_least && leg.age + since <= MAX_AGE
        };
        for leg in paths.reply.legs.iter().filter(usable) {
            // The rates are positive, so the cast only drops the fraction.
            let rate = Rate::from_bps(leg.planned_bps(since) as u64);
            graph.set(leg.from as usize, leg.to as usize, Some(rate));
        }
        graph
    }

    /// Whether each node of the matrix relays. Without a roster all count as relays.
    pub fn relays(&self) -> Vec<bool> {
        let relays = |name: &Name| match &self.roster {
            Some(roster) => roster.by_name(name).is_some_and(|m| m.is(Role::Relay)),
            None => true,
        };
        self.names().into_iter().map(relays).collect()
    }

    /// The nodes of the matrix by tag.
    pub fn tags(&self) -> BTreeMap<String, Vec<usize>> {
        let mut tags: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (at, name) in self.names().into_iter().enumerate() {
            let member = self.roster.as_ref().and_then(|roster| roster.by_name(name));
            for tag in member.iter().flat_map(|m| &m.tags) {
                tags.entry(tag.to_string()).or_default().push(at);
            }
        }
        tags
    }
}
