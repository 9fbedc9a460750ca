//! Finds the settings and the state directory (XDG Base Directory Specification 0.8).

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};
use thiserror::Error;

/// No path was given, and the user's directory is not known.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the {what} has no default path: neither {variables} nor HOME is set; give {option}")]
pub struct NoDefaultPath {
    what: &'static str,
    variables: &'static str,
    option: &'static str,
}

/// The state directory: the given one, else `$THALWEG_STATE`, else `thalweg` in
/// `$XDG_STATE_HOME` or in `~/.local/state`. Need not exist.
///
/// # Errors
/// [`NoDefaultPath`].
pub fn state_directory(given: Option<&Path>) -> Result<PathBuf, NoDefaultPath> {
    state_directory_by(given, |name| std::env::var_os(name))
}

/// The settings file: the given one, else `thalweg/config.toml` in `$XDG_CONFIG_HOME` or in `~/.config`, which need not
/// exist; `None` if there is no such directory.
pub fn config_file(given: Option<&Path>) -> Option<PathBuf> {
    config_file_by(given, |name| std::env::var_os(name))
}

type Variable<'a> = &'a dyn Fn(&str) -> Option<OsString>;

fn state_directory_by(
    given: Option<&Path>,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<PathBuf, NoDefaultPath> {
    let named = || set(&variable, "THALWEG_STATE");
    let below = || below_home(&variable, "XDG_STATE_HOME", ".local/state");
    let found = given.map(Path::to_owned).or_else(named).or_else(|| Some(below()?.join("thalweg")));
    found.ok_or(NoDefaultPath {
        what: "state directory",
        variables: "THALWEG_STATE nor XDG_STATE_HOME",
        option: "--state DIR",
    })
}

fn config_file_by(
    given: Option<&Path>,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Option<PathBuf> {
    let below = || below_home(&variable, "XDG_CONFIG_HOME", ".config");
    given.map(Path::to_owned).or_else(|| Some(below()?.join("thalweg/config.toml")))
}

/// The specification requires relative paths in its variables to be ignored.
fn below_home(variable: Variable<'_>, xdg: &str, otherwise: &str) -> Option<PathBuf> {
    let home = || Some(set(variable, "HOME")?.join(otherwise));
    set(variable, xdg).filter(|p| p.is_absolute()).or_else(home)
}

/// An empty variable counts as unset.
fn set(variable: Variable<'_>, name: &str) -> Option<PathBuf> {
    variable(name).filter(|v| !v.is_empty()).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(pairs: &'static [(&str, &str)]) -> impl Fn(&str) -> Option<OsString> {
        move |name| pairs.iter().find(|(n, _)| *n == name).map(|(_, v)| v.into())
    }

    fn state(given: Option<&str>, pairs: &'static [(&str, &str)]) -> Option<String> {
        let found = state_directory_by(given.map(Path::new), env(pairs)).ok();
        found.map(|p| p.display().to_string())
    }

    #[test]
    fn the_most_specific_state_directory_is_used() {
        const ALL: &[(&str, &str)] =
            &[("THALWEG_STATE", "/t"), ("XDG_STATE_HOME", "/x"), ("HOME", "/h")];
        assert_eq!(state(Some("g"), ALL).as_deref(), Some("g"));
        assert_eq!(state(None, ALL).as_deref(), Some("/t"));
        assert_eq!(state(None, &ALL[1..]).as_deref(), Some("/x/thalweg"));
        assert_eq!(state(None, &ALL[2..]).as_deref(), Some("/h/.local/state/thalweg"));
        assert_eq!(state(None, &[]), None);
        let others = &[("THALWEG_STATE", ""), ("XDG_STATE_HOME", "x"), ("HOME", "/h")];
        assert_eq!(state(None, others).as_deref(), Some("/h/.local/state/thalweg"));
    }

    #[test]
    fn without_a_home_the_error_says_what_to_give() {
        let error = state_directory_by(None, env(&[])).unwrap_err().to_string();
        assert!(error.contains("--state DIR") && error.contains("THALWEG_STATE"), "{error}");
        assert_eq!(config_file_by(None, env(&[])), None);
        let home = config_file_by(None, env(&[("HOME", "/h")]));
        assert_eq!(home.as_deref(), Some(Path::new("/h/.config/thalweg/config.toml")));
    }
}
