//! What there is to show: the oracle's word, or what is kept of it, and this host's own.

use crate::commands::{here::Place, remembered};
use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};
use thalweg_mesh::State;
use thalweg_net::DialOptions;
use thalweg_paths::{
    detours::{AskError, Detours, KnownPaths, ask_candidates, ask_paths},
    history::History,
};
use thalweg_plan::{Graph, graph::MAX_AGE};
use thalweg_units::{Rate, WallTime};
use thalweg_wire::mesh::{
    Name, Role, Roster,
    measure::{CandidatesReply, PathsReply},
};

/// How long the oracle may take.
const PATIENCE: Duration = Duration::from_secs(3);

/// All that is known.
pub struct Found {
    /// This host's name in the mesh.
    pub me: Name,
    /// The roster as it was kept, if there is one.
    pub roster: Option<Arc<Roster>>,
    /// What the oracle knows of paths.
    pub paths: Option<KnownPaths>,
    /// The candidates, and what was learnt of them.
    pub detours: Detours,
    /// What earlier transfers saw.
    pub history: Arc<Mutex<History>>,
    /// Why the oracle told nothing new.
    pub trouble: Option<String>,
    /// For people: what is not as it should be.
    pub notes: Vec<String>,
    /// The date of all ages.
    pub now: WallTime,
}

impl Found {
    /// Asks the oracle, keeps what it says, and takes what was kept if it says nothing.
    ///
    /// # Errors
    /// If this host is in no mesh, or its state cannot be used.
    pub async fn ask(state: &State, history: Option<&Path>, place: &Place) -> anyhow::Result<Self> {
        let me = state.mesh()?.name;
        let file = remembered::file(history, place);
        let mut found = Self::kept(me, file.as_deref());
        found.roster = state.membership().ok().and_then(|m| m.current());
        let (candidates, paths) = tokio::join!(
            ask_candidates(state, DialOptions::default(), PATIENCE),
            ask_paths(state, PATIENCE)
        );
        found.take(candidates, paths, file.as_deref());
        Ok(found)
    }

    /// What is on this host.
    pub fn kept(me: Name, file: Option<&Path>) -> Self {
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
            now: remembered::now(),
        }
    }

    /// Takes in what the oracle said.
    pub fn take(
        &mut self,
        candidates: Result<CandidatesReply, AskError>,
        paths: Result<PathsReply, AskError>,
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
        self.notes.extend(unkept.map(|e| format!("what the oracle said is not kept: {e}")));
        if let Some(why) = &self.trouble {
            self.notes.push(format!("the oracle says nothing new: {why}"));
        }
    }

    /// Why nothing is known.
    pub fn excuse(&self) -> String {
        let said = "the oracle has not measured anything yet".to_owned();
        self.trouble.clone().unwrap_or(said)
    }

    /// The nodes of the matrix, by name.
    pub fn names(&self) -> Vec<&Name> {
        self.paths.iter().flat_map(|p| &p.reply.nodes).collect()
    }

    /// What can be planned with: exact rates that are not too old, of the matrix's nodes.
    pub fn graph(&self) -> Graph {
        let mut graph = Graph::new(self.names().len());
        let Some(paths) = &self.paths else { return graph };
        let since = paths.age(self.now);
        let usable = |leg: &&thalweg_wire::mesh::measure::LegEntry| {
            !leg.at_least && leg.age + since <= MAX_AGE
        };
        for leg in paths.reply.legs.iter().filter(usable) {
            // Of positive numbers the cast takes the whole part.
            let rate = Rate::from_bps(leg.planned_bps(since) as u64);
            graph.set(leg.from as usize, leg.to as usize, Some(rate));
        }
        graph
    }

    /// For each node of the matrix: whether it relays. Without a roster all count as relays.
    pub fn relays(&self) -> Vec<bool> {
        let relays = |name: &Name| match &self.roster {
            Some(roster) => roster.by_name(name).is_some_and(|m| m.is(Role::Relay)),
            None => true,
        };
        self.names().into_iter().map(relays).collect()
    }

    /// The nodes of the matrix by their tags.
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
