//! A proxy with what this host knows: its mesh, its key, its history.

use super::{Log, PathArgs};
use crate::commands::{get::mesh::Mesh, remembered, renewal};
use anyhow::anyhow;
use std::{
    io,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
    time::Duration,
};
use thalweg_net::{DialOptions, Dialer, SocketOptions};
use thalweg_node::{
    detours::{ByDetours, Detours, Draw, ask_candidates},
    history::History,
    mesh::State,
    proxy::{Proxy, ProxyConfig, ProxyError},
};
use tokio::time::{Instant, interval};

/// How often the mesh is read anew: a daemon keeps the roster, or we do.
const LOOK: Duration = Duration::from_secs(30);

/// How often the oracle is asked where no daemon does, as `get` has it.
const ASK: Duration = Duration::from_secs(600);

/// How long the oracle may take; beside the work, so nobody waits.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often what was learnt is saved.
const SAVE: Duration = Duration::from_secs(300);

/// A proxy, and what keeps it new.
pub struct Running {
    /// The proxy, bound.
    pub proxy: Proxy,
    /// Its mesh and its memory.
    pub keeper: Keeper,
}

/// Keeps roster and history while the proxy runs.
pub struct Keeper {
    paths: PathArgs,
    mesh: Arc<RwLock<Mesh>>,
    history: Option<(Arc<Mutex<History>>, PathBuf)>,
    detours: Arc<Mutex<Detours>>,
}

/// Makes the proxy of this host. `note` is told what the user should know.
///
/// # Errors
/// What is wrong with the arguments or the address.
pub async fn start(
    config: ProxyConfig,
    paths: &PathArgs,
    log: Arc<Log>,
    note: &dyn Fn(String),
) -> anyhow::Result<Running> {
    let mesh = open(paths);
    if let (true, Some(fault)) = (paths.tries_mesh(), mesh.fault()) {
        note(format!("no relays are tried: {fault}"));
    }
    paths.check(&mesh)?;
    let dialer = dialer(&mesh);
    let file = remembered::file(paths.history.as_deref(), &paths.place);
    let detours = match &file {
        Some(file) => Detours::open(&Detours::beside(file)),
        None => Detours::unkept(),
    };
    if let Some(problem) = detours.problem() {
        note(problem.to_owned());
    }
    let detours = Arc::new(Mutex::new(detours));
    let history = file.map(|file| (Arc::new(Mutex::new(History::open(&file))), file));
    let mesh = Arc::new(RwLock::new(mesh));
    let (seen, asked) = (Arc::clone(&mesh), paths.clone());
    let relays = Box::new(move |content| {
        asked.relays(&seen.read().unwrap_or_else(PoisonError::into_inner), content)
    });
    let memory = history.as_ref().map(|(history, _)| Arc::clone(history));
    let known = Arc::clone(&detours);
    let chooser = Arc::new(ByDetours::new(relays, memory, known, Draw::default()));
    let proxy = Proxy::bind(config, dialer, chooser, log).await.map_err(with_hint)?;
    Ok(Running { proxy, keeper: Keeper { paths: paths.clone(), mesh, history, detours } })
}

fn open(paths: &PathArgs) -> Mesh {
    Mesh::open(paths.place.open(), paths.place.argument())
}

/// A program may read as slowly as it likes: no time-out of the kernel's for shut windows.
fn dialer(mesh: &Mesh) -> Dialer {
    let socket = SocketOptions { user_timeout: None, ..SocketOptions::default() };
    let options = DialOptions { socket, ..DialOptions::default() };
    match mesh.identity() {
        Some(identity) => Dialer::with_identity(options, identity.clone()),
        None => Dialer::new(options),
    }
}

/// What to try, in the commands' own options.
fn with_hint(error: ProxyError) -> anyhow::Error {
    let hint = match &error {
        ProxyError::Open(_) => "listen on 127.0.0.1 or [::1]",
        ProxyError::NoConnections => "give --max-connections at least 1",
        ProxyError::Listen { source, .. } => match source.kind() {
            io::ErrorKind::AddrInUse => "is another proxy using it? --listen takes another port",
            io::ErrorKind::AddrNotAvailable => "this host has no such address",
            io::ErrorKind::PermissionDenied => "ports below 1024 are for root; take a higher one",
            _ => return error.into(),
        },
    };
    anyhow!("{error}: {hint}")
}

impl Keeper {
    /// Works on; never ends.
    pub async fn keep(&mut self, note: &dyn Fn(String)) {
        let mut looks = interval(LOOK);
        let (mut asked, mut saved) = (None::<Instant>, Instant::now());
        loop {
            looks.tick().await;
            if asked.is_none_or(|asked| asked.elapsed() >= ASK) {
                self.ask(note).await;
                asked = Some(Instant::now());
            }
            self.look().await;
            self.follow().await;
            if saved.elapsed() >= SAVE {
                self.save(note);
                saved = Instant::now();
            }
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
        let renewed = renewal::renew_without_daemon(&state, PATIENCE).await;
        // An oracle that is away hinders nothing.
        if let Some(refused) = renewed.err().filter(renewal::is_refusal) {
            note(refused.to_string());
        }
    }

    /// Asks the oracle for its candidates when those that are known are old. One that is away
    /// hinders nothing: the known ones go on.
    async fn follow(&self) {
        if !self.paths.tries_mesh() || !self.detours().is_stale(remembered::now()) {
            return;
        }
        let Some(state) = self.paths.place.open().ok().filter(State::has_mesh) else { return };
        let me = state.mesh().ok().map(|mesh| mesh.name);
        if let Ok(reply) = ask_candidates(&state, PATIENCE).await {
            self.detours().follow(reply, me.as_ref(), remembered::now());
        }
    }

    fn detours(&self) -> MutexGuard<'_, Detours> {
        self.detours.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn look(&self) {
        let paths = self.paths.clone();
        let Ok(mesh) = tokio::task::spawn_blocking(move || open(&paths)).await else { return };
        *self.mesh.write().unwrap_or_else(PoisonError::into_inner) = mesh;
    }

    /// Keeps what was learnt; it is only a hint, so that it cannot be kept fails nothing.
    pub fn save(&self, note: &dyn Fn(String)) {
        let Some((history, file)) = &self.history else { return };
        let mut history = history.lock().unwrap_or_else(PoisonError::into_inner);
        let saved = remembered::save(&mut history, file).and_then(|()| self.detours().save());
        if let Err(e) = saved {
            note(format!(
                "what was learnt of the paths is not kept: {e} (--history FILE, or none)"
            ));
        }
    }
}
