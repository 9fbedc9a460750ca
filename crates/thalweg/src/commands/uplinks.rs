//! This host's interfaces, as commands open them.

use super::{here::Place, remembered};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use std::{
    path::{Path, PathBuf},
    sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError},
};
use thalweg_base::budget::Budget;
use thalweg_console::note;
use thalweg_mesh::State;
use thalweg_net::Dialer;
use thalweg_uplinks::{
    bond::{self, BondMetrics, Bonding, Bonds, Shown, Watch},
    interfaces::{InterfaceMetrics, Settings, Uplinks, serve},
};

/// A process has one set of interfaces, however many diallers it has.
static OF_PROCESS: OnceLock<Uplinks> = OnceLock::new();

/// And one account of bytes by purpose.
static BUDGET: LazyLock<Arc<Budget>> = LazyLock::new(Arc::default);

/// Its bonds, for who asks: those that it makes, and a daemon's that others made with it.
static BONDS: Watch = Watch::new();
static OF_OTHERS: Mutex<Option<Bonds>> = Mutex::new(None);

/// What this process moves, by purpose: its interfaces' probes and second copies, downloads, measuring, quotas.
pub fn budget() -> Arc<Budget> {
    BUDGET.clone()
}

/// What is known of interfaces is kept beside the history.
fn beside(history: &Path) -> PathBuf {
    history.with_file_name("interfaces.json")
}

/// Where it is kept, if it is: beside the history; where a cap is to hold, beside the usual one, whatever history is
/// wanted, since what all processes spent of it is in there.
pub fn file(settings: &Settings, history: Option<&Path>, place: &Place) -> Option<PathBuf> {
    let history = history.filter(|_| !has_cap(settings));
    remembered::file(history, place).map(|file| beside(&file))
}

fn has_cap(settings: &Settings) -> bool {
    settings.policies.values().any(|policy| policy.cap.is_some())
}

/// Where processes answer questions about them.
pub fn sockets(file: &Path) -> PathBuf {
    file.with_file_name("uplinks")
}

/// The interfaces, by these settings. Where what is kept cannot be read, or there is no place for it, nothing is kept,
/// unless a cap is to hold: what was spent of it is in there.
///
/// # Errors
/// A cap, and no word of what was spent.
pub fn open(
    settings: Settings,
    file: Option<PathBuf>,
    note: &dyn Fn(String),
) -> anyhow::Result<Uplinks> {
    let uplinks = kept_or_not(settings, file, note)?;
    uplinks.charge_to(budget());
    Ok(uplinks)
}

fn kept_or_not(
    settings: Settings,
    file: Option<PathBuf>,
    note: &dyn Fn(String),
) -> anyhow::Result<Uplinks> {
    let has_cap = has_cap(&settings);
    let Some(path) = file else {
        anyhow::ensure!(
            !has_cap,
            "there is no place to keep what is spent of the caps in the settings: neither a state \
             directory nor HOME"
        );
        return Ok(Uplinks::unkept(settings));
    };
    // What was spent of a cap before this host was a member counts as well.
    if has_cap && let Err(why) = remembered::take_over(&path) {
        note(format!(
            "what was known of interfaces is not taken over into {}: {why}",
            path.display()
        ));
    }
    match Uplinks::open(settings.clone(), Some(path.clone())) {
        Ok(uplinks) => Ok(uplinks),
        Err(why) if has_cap => anyhow::bail!(
            "{}: {why}; it says what was spent of the caps in the settings. Remove it to begin them \
             anew",
            path.display()
        ),
        Err(why) => {
            note(format!("what is known of interfaces cannot be read, and is not kept: {why}"));
            Ok(Uplinks::unkept(settings))
        }
    }
}

/// What goes wrong with interfaces is told on standard error.
pub fn to_stderr(why: String) {
    note!("thalweg: {why}");
}

/// The bonds of a member, by what its settings allow; within a runtime, which then follows the
/// interfaces. Where they allow all, by all. `tell` hears what goes wrong with them.
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
    let uplinks = match OF_PROCESS.get() {
        Some(uplinks) => uplinks.clone(),
        None => {
            let file = state.dir().join("interfaces.json");
            let uplinks = open(settings, Some(file.clone()), &tell)?;
            uplinks.probe_by(dialer.clone());
            begin(uplinks, Some(&file), tell)
        }
    };
    Ok(Bonding::over(dialer, bond::Settings::default(), uplinks))
}

/// These as they are used, which the process's status shows from now on.
pub fn shown(bonds: Bonding) -> Bonding {
    BONDS.add(&bonds);
    bonds
}

/// The bonds that others made with this daemon, which its status shows until [`end`].
pub fn shown_of_others(bonds: &Bonds) {
    *of_others() = Some(bonds.clone());
}

/// Those that others made.
fn shown_by_others() -> Vec<Shown> {
    of_others().as_ref().map(Bonds::shown).unwrap_or_default()
}

fn of_others() -> MutexGuard<'static, Option<Bonds>> {
    OF_OTHERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has the interfaces and bonds of this process be among these metrics.
pub fn register(registry: &mut Registry) {
    if let Some(uplinks) = of_process() {
        registry.register_collector(Box::new(InterfaceMetrics(uplinks)));
    }
    registry.register_collector(Box::new(BondMetrics(Box::new(all_bonds))));
}

fn all_bonds() -> Vec<Shown> {
    [BONDS.shown(), shown_by_others()].concat()
}

/// Has these, which are kept in this file, be the interfaces of this process, unless it has some: they are followed, and
/// who asks is answered, until [`end`]; `tell` hears what goes wrong. Within a runtime.
pub fn begin(
    uplinks: Uplinks,
    file: Option<&Path>,
    tell: impl Fn(String) + Clone + Send + 'static,
) -> Uplinks {
    OF_PROCESS
        .get_or_init(|| {
            let (followed, told) = (uplinks.clone(), tell.clone());
            tokio::spawn(async move { followed.keep(told).await });
            if let Some(file) = file {
                answer(uplinks.clone(), file, tell);
            }
            uplinks
        })
        .clone()
}

/// Answers who asks about them, beside this file.
fn answer(uplinks: Uplinks, file: &Path, tell: impl Fn(String) + Send + 'static) {
    if let Err(why) = remembered::make_place(file) {
        tell(format!("what is learnt of interfaces is not kept in {}: {why}", file.display()));
    }
    let at = sockets(file);
    tokio::spawn(async move {
        let more = |said: &mut Value| {
            said["bonds"] = json!(BONDS.report());
            said["bonds_of_others"] = json!(shown_by_others());
        };
        if let Err(why) = serve(&at, uplinks, &more).await {
            tell(format!("`thalweg interfaces` cannot ask: {}: {why}", at.display()));
        }
    });
}

/// The interfaces of this process, if its bonds go by settings.
pub fn of_process() -> Option<Uplinks> {
    OF_PROCESS.get().cloned()
}

/// Ends bonds, keeps what was moved, and gives back what was allotted and not moved: at a process's end.
pub fn end() {
    BONDS.end();
    // They hold the log, whose writer ends with the last who does.
    *of_others() = None;
    if let Some(uplinks) = OF_PROCESS.get()
        && let Err(why) = uplinks.end()
    {
        to_stderr(uplinks.unsaved(&why));
    }
}
