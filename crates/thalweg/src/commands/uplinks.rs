//! The interfaces, bonds and byte accounts of this process, for all commands.

use super::{history_file, host::StateDir};
use parking_lot::{Mutex, MutexGuard};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use std::{
    path::{Path, PathBuf},
    sync::{Arc, LazyLock, OnceLock},
};
use thalweg_base::budget::Budget;
use thalweg_console::note;
use thalweg_mesh::State;
use thalweg_net::Dialer;
use thalweg_uplinks::{
    bond::{self, BondMetrics, BondRegistry, BondStatus, Bonding, Bonds},
    interfaces::{InterfaceMetrics, Settings, Uplinks, serve},
};

/// A process has one set of interfaces, however many dialers it has.
static PROCESS_UPLINKS: OnceLock<Uplinks> = OnceLock::new();

/// A process has one account of bytes by purpose.
static BUDGET: LazyLock<Arc<Budget>> = LazyLock::new(Arc::default);

/// The bonds for status reports: those of this process, and those that others made with this daemon.
static BONDS: BondRegistry = BondRegistry::new();
static ACCEPTED_BONDS: Mutex<Option<Bonds>> = Mutex::new(None);

/// The bytes that this process moves, by purpose: interfaces' probes and second copies, downloads, measuring, quotas.
pub fn budget() -> Arc<Budget> {
    BUDGET.clone()
}

/// The file with records of interfaces, beside the history.
fn records_file(history: &Path) -> PathBuf {
    history.with_file_name("interfaces.json")
}

/// The file with records of interfaces, if they are stored: beside the history. If there is a cap, it is beside the
/// default history whichever history is given, because it records what all processes have used of the cap.
pub fn file(settings: &Settings, history: Option<&Path>, state_dir: &StateDir) -> Option<PathBuf> {
    let history = history.filter(|_| !has_cap(settings));
    history_file::file(history, state_dir).map(|file| records_file(&file))
}

fn has_cap(settings: &Settings) -> bool {
    settings.policies.values().any(|policy| policy.cap.is_some())
}

/// The directory of the sockets at which processes answer questions about interfaces.
pub fn sockets(file: &Path) -> PathBuf {
    file.with_file_name("uplinks")
}

/// Opens the interfaces with these settings. If the records cannot be read or have no directory, nothing is recorded,
/// unless there is a cap, whose use they hold.
///
/// # Errors
/// If there is a cap, and its use is unknown.
pub fn open(
    settings: Settings,
    file: Option<PathBuf>,
    note: &dyn Fn(String),
) -> anyhow::Result<Uplinks> {
    let uplinks = open_records(settings, file, note)?;
    uplinks.set_budget(budget());
    Ok(uplinks)
}

fn open_records(
    settings: Settings,
    file: Option<PathBuf>,
    note: &dyn Fn(String),
) -> anyhow::Result<Uplinks> {
    let has_cap = has_cap(&settings);
    let Some(path) = file else {
        anyhow::ensure!(
            !has_cap,
            "no directory to record how much of the caps in the settings is used: give --state \
             DIR, or set HOME"
        );
        return Ok(Uplinks::without_file(settings));
    };
    // What was used of a cap before this host became a member counts as well.
    if has_cap && let Err(why) = history_file::adopt_cached(&path) {
        note(format!("cannot copy the records of interfaces to {}: {why}", path.display()));
    }
    match Uplinks::open(settings.clone(), Some(path.clone())) {
        Ok(uplinks) => Ok(uplinks),
        Err(why) if has_cap => anyhow::bail!(
            "{}: {why}; this file records how much of the caps in the settings was used. Remove it \
             to count from zero",
            path.display()
        ),
        Err(why) => {
            note(format!("cannot read the records of interfaces, so no new ones are saved: {why}"));
            Ok(Uplinks::without_file(settings))
        }
    }
}

/// Prints a fault of the interfaces on standard error.
pub fn to_stderr(why: String) {
    note!("thalweg: {why}");
}

/// The bonds of a member, over the interfaces that its settings allow; without settings, over all. Must be called
/// within a runtime, which then follows the interfaces. `tell` is called with faults.
///
/// # Errors
/// As [`open`].
pub fn bonding(
    dialer: Dialer,
    settings: Settings,
    state: &State,
    tell: impl Fn(String) + Clone + Send + 'static,
) -> anyhow::Result<Bonding> {
    if settings.is_plain() {
        return Ok(Bonding::new(dialer, bond::Settings::default()));
    }
    let uplinks = match PROCESS_UPLINKS.get() {
        Some(uplinks) => uplinks.clone(),
        None => {
            let file = state.dir().join("interfaces.json");
            let uplinks = open(settings, Some(file.clone()), &tell)?;
            uplinks.set_probe_dialer(dialer.clone());
            begin(uplinks, Some(&file), tell)
        }
    };
    Ok(Bonding::with_uplinks(dialer, bond::Settings::default(), uplinks))
}

/// Adds these bonds to the process's status.
pub fn track_bonds(bonds: Bonding) -> Bonding {
    BONDS.add(&bonds);
    bonds
}

/// Adds the bonds that others made with this daemon to its status, until [`end`].
pub fn track_accepted_bonds(bonds: &Bonds) {
    *lock_accepted_bonds() = Some(bonds.clone());
}

/// The state of the bonds that others made.
fn accepted_bonds() -> Vec<BondStatus> {
    lock_accepted_bonds().as_ref().map(Bonds::shown).unwrap_or_default()
}

fn lock_accepted_bonds() -> MutexGuard<'static, Option<Bonds>> {
    ACCEPTED_BONDS.lock()
}

/// Registers the metrics of this process's interfaces and bonds.
pub fn register(registry: &mut Registry) {
    if let Some(uplinks) = process_uplinks() {
        registry.register_collector(Box::new(InterfaceMetrics(uplinks)));
    }
    registry.register_collector(Box::new(BondMetrics(Box::new(all_bonds))));
}

fn all_bonds() -> Vec<BondStatus> {
    [BONDS.shown(), accepted_bonds()].concat()
}

/// Makes these interfaces, which are stored in this file, the interfaces of this process, unless it already has some.
/// They are followed, and questions about them answered, until [`end`]; `tell` is called with faults. Must be called
/// within a runtime.
pub fn begin(
    uplinks: Uplinks,
    file: Option<&Path>,
    tell: impl Fn(String) + Clone + Send + 'static,
) -> Uplinks {
    PROCESS_UPLINKS
        .get_or_init(|| {
            let (kept_uplinks, log) = (uplinks.clone(), tell.clone());
            tokio::spawn(async move { kept_uplinks.keep(log).await });
            if let Some(file) = file {
                answer(uplinks.clone(), file, tell);
            }
            uplinks
        })
        .clone()
}

/// Answers questions about the interfaces, at a socket beside this file.
fn answer(uplinks: Uplinks, file: &Path, tell: impl Fn(String) + Send + 'static) {
    if let Err(why) = history_file::create_parent(file) {
        tell(format!("cannot save the records of interfaces in {}: {why}", file.display()));
    }
    let at = sockets(file);
    tokio::spawn(async move {
        let more = |report: &mut Value| {
            report["bonds"] = json!(BONDS.report());
            report["bonds_of_others"] = json!(accepted_bonds());
        };
        if let Err(why) = serve(&at, uplinks, &more).await {
            tell(format!(
                "`thalweg interfaces` will not see this process: {}: {why}",
                at.display()
            ));
        }
    });
}

/// The interfaces of this process, if its settings have policies.
pub fn process_uplinks() -> Option<Uplinks> {
    PROCESS_UPLINKS.get().cloned()
}

/// At the end of a process: ends bonds, saves the records, and returns quotas that were not used.
pub fn end() {
    BONDS.end();
    // The bonds hold the log, whose writer ends with its last user.
    *lock_accepted_bonds() = None;
    if let Some(uplinks) = PROCESS_UPLINKS.get()
        && let Err(why) = uplinks.end()
    {
        to_stderr(uplinks.unsaved(&why));
    }
}
