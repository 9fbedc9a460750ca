//! This host's interfaces, as commands open them.

use serde_json::Value;
use std::{
    path::{Path, PathBuf},
    sync::OnceLock,
};
use thalweg_net::Dialer;
use thalweg_node::{
    bond::{self, Bonding},
    interfaces::{Settings, Uplinks, serve},
    mesh::State,
};

/// A process has one set of interfaces, however many diallers it has.
static OF_PROCESS: OnceLock<Uplinks> = OnceLock::new();

/// What is known of interfaces is kept beside the history.
pub fn beside(history: &Path) -> PathBuf {
    history.with_file_name("interfaces.json")
}

/// Where processes answer questions about them.
pub fn sockets(file: &Path) -> PathBuf {
    file.with_file_name("uplinks")
}

/// The interfaces, by these settings. Where what is kept cannot be read, nothing is kept, unless a
/// cap is to hold: what was spent of it is in there.
///
/// # Errors
/// A cap, and no word of what was spent.
pub fn open(
    settings: Settings,
    file: Option<PathBuf>,
    note: &dyn Fn(String),
) -> anyhow::Result<Uplinks> {
    let Some(path) = file else { return Ok(Uplinks::unkept(settings)) };
    let has_cap = settings.policies.values().any(|policy| policy.cap.is_some());
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

/// The bonds of a member, by what its settings allow; within a runtime, which then follows the
/// interfaces. Where they allow all, by all.
///
/// # Errors
/// As [`open`].
pub fn bonding(dialer: Dialer, settings: Settings, state: &State) -> anyhow::Result<Bonding> {
    if settings.is_plain() {
        return Ok(Bonding::new(dialer, bond::Settings::default()));
    }
    let uplinks = match OF_PROCESS.get() {
        Some(uplinks) => uplinks.clone(),
        None => {
            let file = state.dir().join("interfaces.json");
            let at = sockets(&file);
            let uplinks = open(settings, Some(file), &|_| ())?;
            uplinks.probe_by(dialer.clone());
            let (followed, asked) = (uplinks.clone(), uplinks.clone());
            tokio::spawn(async move { followed.keep_silently().await });
            tokio::spawn(async move { serve(&at, asked, &|_: &mut Value| ()).await });
            OF_PROCESS.get_or_init(|| uplinks).clone()
        }
    };
    Ok(Bonding::over(dialer, bond::Settings::default(), uplinks))
}

/// The interfaces of this process, if its bonds go by settings.
pub fn of_process() -> Option<Uplinks> {
    OF_PROCESS.get().cloned()
}

/// Keeps what was moved, and gives back what was allotted and not moved: at a process's end.
pub fn end() {
    if let Some(uplinks) = OF_PROCESS.get() {
        // Who moved bytes told of them every few seconds; what could not be kept was not by then.
        _ = uplinks.end();
    }
}
