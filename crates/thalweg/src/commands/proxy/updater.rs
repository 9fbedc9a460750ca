//! Keeps a running proxy up to date: its roster, the oracle's list, and its history.

use super::{ProxyPathArgs, interface_service::InterfaceService, memory::Memory};
use crate::commands::{get::mesh::Mesh, history_file, renewal};
use parking_lot::{Mutex, MutexGuard, RwLock};
use std::{sync::Arc, time::Duration};
use thalweg_mesh::State;
use thalweg_net::DialOptions;
use thalweg_paths::detours::{Detours, ask_candidates};
use thalweg_proxy::Reviewer;
use tokio::time::{Instant, interval};

/// How often the mesh is read again, because the daemon or this process renews the roster. A revoked relay may carry
/// its open connections this much longer, unless it closes them itself.
const MESH_INTERVAL: Duration = Duration::from_secs(10);

/// How often the oracle is asked if no daemon does it; the same interval as for `get`.
const ORACLE_INTERVAL: Duration = Duration::from_secs(600);

/// The timeout for the oracle's answer; nothing waits for it.
const ORACLE_TIMEOUT: Duration = Duration::from_secs(10);

/// Keeps roster, history and interfaces up to date while the proxy runs.
pub struct ProxyUpdater {
    view: View,
    memory: Memory,
    answering: InterfaceService,
}

/// The proxy's view of the mesh.
struct View {
    paths: ProxyPathArgs,
    mesh: Arc<RwLock<Mesh>>,
    detours: Arc<Mutex<Detours>>,
    reviewer: Reviewer,
    /// The options for connections to the oracle: with packet rules, they carry the mark that lets them pass.
    dial: DialOptions,
}

/// Opens this host's mesh as it is now.
pub fn open(paths: &ProxyPathArgs) -> Mesh {
    Mesh::open(paths.state_dir.open(), paths.state_dir.argument())
}

impl ProxyUpdater {
    /// Creates the updater of this mesh and memory. The reviewer is called after each look at the mesh; the oracle is
    /// called with the options `dial`.
    pub fn new(
        paths: ProxyPathArgs,
        mesh: Arc<RwLock<Mesh>>,
        memory: Memory,
        answering: InterfaceService,
        reviewer: Reviewer,
        dial: DialOptions,
    ) -> Self {
        let detours = memory.shared_detours();
        Self { view: View { paths, mesh, detours, reviewer, dial }, memory, answering }
    }

    /// Keeps everything up to date; never ends. Saving does not wait for an oracle that is away.
    pub async fn keep(&mut self, note: &dyn Fn(String)) {
        tokio::select! {
            () = self.view.keep(note) => {}
            () = self.memory.keep(note) => {}
            () = self.answering.keep(note) => {}
        }
    }

    /// Saves what was learnt.
    pub async fn save(&mut self, note: &dyn Fn(String)) {
        self.memory.exchange(note).await;
        self.answering.save(note).await;
    }
}

impl View {
    async fn keep(&self, note: &dyn Fn(String)) {
        let mut looks = interval(MESH_INTERVAL);
        let mut asked = None::<Instant>;
        loop {
            looks.tick().await;
            if asked.is_none_or(|asked| asked.elapsed() >= ORACLE_INTERVAL) {
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
        let Some(state) = self.paths.state_dir.open().ok().filter(|state| state.has_mesh()) else {
            return;
        };
        let renewed =
            renewal::renew_without_daemon(&state, self.dial.clone(), ORACLE_TIMEOUT).await;
        // An oracle that is away is no problem.
        if let Some(refused) = renewed.err().filter(renewal::is_refusal) {
            note(refused.to_string());
        }
    }

    /// Asks the oracle for candidates if the known ones are old. If the oracle is away, the known ones stay in use.
    async fn follow(&self) {
        if !self.paths.tries_mesh() || !self.wants_candidates() {
            return;
        }
        let Some(state) = self.paths.state_dir.open().ok().filter(State::has_mesh) else { return };
        let me = state.mesh().ok().map(|mesh| mesh.name);
        match ask_candidates(&state, self.dial.clone(), ORACLE_TIMEOUT).await {
            Ok(reply) => self.detours().follow(reply, me.as_ref(), history_file::now()),
            Err(_) => self.detours().note_unanswered(history_file::now()),
        }
    }

    fn wants_candidates(&self) -> bool {
        let (detours, now) = (self.detours(), history_file::now());
        detours.is_stale(now) && !detours.is_away(now)
    }

    fn detours(&self) -> MutexGuard<'_, Detours> {
        self.detours.lock()
    }

    async fn look(&self) {
        let paths = self.paths.clone();
        let Ok(mesh) = tokio::task::spawn_blocking(move || open(&paths)).await else { return };
        *self.mesh.write() = mesh;
        self.reviewer.review();
    }
}
