//! What keeps a proxy new while it runs: its roster, the oracle's list, what it learnt.

use super::{PathArgs, answering::Answering, memory::Memory};
use crate::commands::{get::mesh::Mesh, remembered, renewal};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
    time::Duration,
};
use thalweg_mesh::State;
use thalweg_net::DialOptions;
use thalweg_paths::detours::{Detours, ask_candidates};
use thalweg_proxy::Reviewer;
use tokio::time::{Instant, interval};

/// How often the mesh is read anew: a daemon keeps the roster, or we do. So long a relay that
/// was revoked may carry what it carries already, if it does not let go by itself.
const LOOK: Duration = Duration::from_secs(10);

/// How often the oracle is asked where no daemon does, as `get` has it.
const ASK: Duration = Duration::from_secs(600);

/// How long the oracle may take; beside the work, so nobody waits.
const PATIENCE: Duration = Duration::from_secs(10);

/// Keeps roster and history while the proxy runs.
pub struct Keeper {
    view: View,
    memory: Memory,
    answering: Answering,
}

/// What the proxy sees of the mesh.
struct View {
    paths: PathArgs,
    mesh: Arc<RwLock<Mesh>>,
    detours: Arc<Mutex<Detours>>,
    reviewer: Reviewer,
    /// How the oracle is called: where connections are led to the proxy, so that they pass.
    dial: DialOptions,
}

/// This host's mesh as it is now.
pub fn open(paths: &PathArgs) -> Mesh {
    Mesh::open(paths.place.open(), paths.place.argument())
}

impl Keeper {
    /// For this mesh and memory; the reviewer is told of each look at the mesh, and the oracle is called with these
    /// options.
    pub fn new(
        paths: PathArgs,
        mesh: Arc<RwLock<Mesh>>,
        memory: Memory,
        answering: Answering,
        reviewer: Reviewer,
        dial: DialOptions,
    ) -> Self {
        let detours = memory.shared_detours();
        Self { view: View { paths, mesh, detours, reviewer, dial }, memory, answering }
    }

    /// Works on; never ends. An oracle that is away holds up no saving.
    pub async fn keep(&mut self, note: &dyn Fn(String)) {
        tokio::select! {
            () = self.view.keep(note) => {}
            () = self.memory.keep(note) => {}
            () = self.answering.keep(note) => {}
        }
    }

    /// Keeps what was learnt.
    pub async fn save(&mut self, note: &dyn Fn(String)) {
        self.memory.exchange(note).await;
        self.answering.save(note).await;
    }
}

impl View {
    async fn keep(&self, note: &dyn Fn(String)) {
        let mut looks = interval(LOOK);
        let mut asked = None::<Instant>;
        loop {
            looks.tick().await;
            if asked.is_none_or(|asked| asked.elapsed() >= ASK) {
                self.ask(note).await;
                asked = Some(Instant::now());
            }
            self.look().await;
            self.follow().await;
        }
    }

    /// Asks the oracle for a newer roster, if this host is in a mesh and no daemon does it.
    async fn ask(&self, note: &dyn Fn(String)) {
        if self.paths.no_relays {
            return;
        }
        let Some(state) = self.paths.place.open().ok().filter(|state| state.has_mesh()) else {
            return;
        };
        let renewed = renewal::renew_without_daemon(&state, self.dial.clone(), PATIENCE).await;
        // An oracle that is away hinders nothing.
        if let Some(refused) = renewed.err().filter(renewal::is_refusal) {
            note(refused.to_string());
        }
    }

    /// Asks the oracle for its candidates when those that are known are old. One that is away
    /// hinders nothing: the known ones go on.
    async fn follow(&self) {
        if !self.paths.tries_mesh() || !self.wants_candidates() {
            return;
        }
        let Some(state) = self.paths.place.open().ok().filter(State::has_mesh) else { return };
        let me = state.mesh().ok().map(|mesh| mesh.name);
        match ask_candidates(&state, self.dial.clone(), PATIENCE).await {
            Ok(reply) => self.detours().follow(reply, me.as_ref(), remembered::now()),
            Err(_) => self.detours().note_unanswered(remembered::now()),
        }
    }

    fn wants_candidates(&self) -> bool {
        let (detours, now) = (self.detours(), remembered::now());
        detours.is_stale(now) && !detours.is_away(now)
    }

    fn detours(&self) -> MutexGuard<'_, Detours> {
        self.detours.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn look(&self) {
        let paths = self.paths.clone();
        let Ok(mesh) = tokio::task::spawn_blocking(move || open(&paths)).await else { return };
        *self.mesh.write().unwrap_or_else(PoisonError::into_inner) = mesh;
        self.reviewer.review();
    }
}
