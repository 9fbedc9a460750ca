//! Whether a committed result still describes the code.

use crate::machine::git;
use serde::Serialize;
use std::{fmt, path::Path};

/// How a result relates to the code of the checkout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "state")]
#[non_exhaustive]
pub enum Freshness {
    /// The measured code has not changed since.
    Current,
    /// The measured code has changed.
    Stale {
        /// The commits that changed it.
        commits: usize,
        /// The directories in `crates` that they changed.
        code: Vec<String>,
    },
    /// The repository has no such commit, so nobody can tell which code was measured.
    UnknownCommit,
    /// This is no checkout, or git is not installed.
    NotChecked,
}

impl Freshness {
    /// Compares the code that was measured at `commit` with that of the checkout that contains `directory`. `code` are
    /// directories in `crates`.
    pub fn new(directory: &Path, commit: &str, code: &[String]) -> Self {
        let Some(root) = git(directory, &["rev-parse", "--show-toplevel"]) else {
            return Self::NotChecked;
        };
        let root = Path::new(&root);
        if git(root, &["merge-base", "--is-ancestor", commit, "HEAD"]).is_none() {
            return Self::UnknownCommit;
        }
        let changed: Vec<String> =
            code.iter().filter(|name| commits(root, commit, &[*name]) > 0).cloned().collect();
        if changed.is_empty() {
            return Self::Current;
        }
        let all: Vec<&String> = changed.iter().collect();
        Self::Stale { commits: commits(root, commit, &all), code: changed }
    }
}

/// The commits since `commit` that changed the sources of these crates.
fn commits(root: &Path, commit: &str, code: &[&String]) -> usize {
    let range = format!("{commit}..HEAD");
    let sources: Vec<String> = code.iter().map(|name| format!("crates/{name}/src")).collect();
    let mut args = vec!["rev-list", "--count", &range, "--"];
    args.extend(sources.iter().map(String::as_str));
    git(root, &args).and_then(|count| count.parse().ok()).unwrap_or_default()
}

impl fmt::Display for Freshness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Current => f.write_str("current"),
            Self::Stale { commits, code } => {
                write!(f, "stale: {commits} commits to {} since", code.join(", "))
            }
            Self::UnknownCommit => f.write_str("stale: its commit is not in this repository"),
            Self::NotChecked => f.write_str("age unknown: no git checkout"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, process::Command};

    /// Runs git in `directory` as nobody in particular.
    fn run(directory: &Path, args: &[&str]) {
        let identity = ["-c", "user.name=t", "-c", "user.email=t@localhost"];
        let output = Command::new("git")
            .arg("-C")
            .arg(directory)
            .args(identity)
            .args(args)
            .output()
            .unwrap();
        assert!(output.status.success(), "git {args:?}: {output:?}");
    }

    /// Writes a source file of a crate and commits it; returns the commit.
    fn change(root: &Path, name: &str, text: &str) -> String {
        let sources = root.join("crates").join(name).join("src");
        fs::create_dir_all(&sources).unwrap();
        fs::write(sources.join("lib.rs"), text).unwrap();
        run(root, &["add", "."]);
        run(root, &["commit", "-q", "-m", text]);
        git(root, &["rev-parse", "--short=12", "HEAD"]).unwrap()
    }

    #[test]
    fn a_result_is_stale_once_the_code_that_it_measured_has_changed() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        run(root, &["init", "-q"]);
        change(root, "get", "one");
        let measured = change(root, "plan", "two");
        let code = ["get", "plan"].map(String::from);
        assert_eq!(Freshness::new(root, &measured, &code), Freshness::Current);
        change(root, "cast", "three");
        assert_eq!(Freshness::new(root, &measured, &code), Freshness::Current);
        change(root, "get", "four");
        let stale = Freshness::Stale { commits: 1, code: vec!["get".into()] };
        assert_eq!(Freshness::new(root, &measured, &code), stale);
        assert_eq!(stale.to_string(), "stale: 1 commits to get since");
    }

    #[test]
    fn a_commit_of_another_repository_is_unknown() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(Freshness::new(root.path(), "0123456789ab", &[]), Freshness::NotChecked);
        run(root.path(), &["init", "-q"]);
        change(root.path(), "get", "one");
        let code = ["get".to_owned()];
        assert_eq!(Freshness::new(root.path(), "0123456789ab", &code), Freshness::UnknownCommit);
    }
}
