//! The file of finished rounds, from which an interrupted run goes on.

use crate::{
    error::{ExperimentError, Result},
    record::RoundRecord,
};
use serde::{Deserialize, Serialize};
use std::{
    fs::{self, File, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
};

/// What a round depends on: rounds of two runs go together only if all of it is equal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// BLAKE3 of the plan, the topology and the options that change a round.
    pub plan: String,
    /// The commit, with `-dirty` where the tree is.
    pub commit: String,
    /// BLAKE3 of our programs: a dirty tree may change between two runs.
    pub programs: String,
}

/// One line of the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Begun(Identity),
    Round(Box<RoundRecord>),
    Finished,
}

/// How a journal was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opened {
    /// There was none, or a finished one.
    New,
    /// So many rounds were found.
    Resumed(usize),
    /// An unfinished run of something else was put aside, because …
    PutAside(&'static str),
}

/// The file, open for appending.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    rounds: Vec<RoundRecord>,
}

impl Journal {
    /// Opens `path` to go on with it if it is an unfinished run of the same
    /// `identity` and `fresh` is not asked for; else begins it anew. What is
    /// not gone on with is kept beside it as `….old`.
    ///
    /// # Errors
    /// When the file cannot be read or written.
    pub fn open(path: &Path, identity: &Identity, fresh: bool) -> Result<(Self, Opened)> {
        let found = read(path)?;
        let opened = match &found {
            None => Opened::New,
            Some(old) if old.finished => Opened::New,
            Some(_) if fresh => Opened::PutAside("a fresh run was asked for"),
            Some(old) => match difference(&old.identity, identity) {
                None => Opened::Resumed(old.rounds.len()),
                Some(why) => Opened::PutAside(why),
            },
        };
        let journal = match (found, &opened) {
            (Some(old), Opened::Resumed(_)) => Self::append_to(path, old)?,
            (found, _) => Self::begin(path, identity, found.is_some())?,
        };
        Ok((journal, opened))
    }

    fn append_to(path: &Path, old: Found) -> Result<Self> {
        let file = OpenOptions::new().append(true).open(path);
        let file = file.map_err(ExperimentError::file("open", path))?;
        // A line that a crash cut short is lost; the next must not be glued to it.
        file.set_len(old.whole).map_err(ExperimentError::file("truncate", path))?;
        Ok(Self { path: path.to_owned(), file, rounds: old.rounds })
    }

    fn begin(path: &Path, identity: &Identity, exists: bool) -> Result<Self> {
        if exists {
            let aside = path.with_extension("jsonl.old");
            fs::rename(path, aside).map_err(ExperimentError::file("put aside", path))?;
        }
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(ExperimentError::file("create", parent))?;
        }
        let file = OpenOptions::new().create_new(true).append(true).open(path);
        let file = file.map_err(ExperimentError::file("create", path))?;
        let mut journal = Self { path: path.to_owned(), file, rounds: vec![] };
        journal.write(&Line::Begun(identity.clone()))?;
        Ok(journal)
    }

    /// Appends a finished round; it is on disk when this returns.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn append(&mut self, round: RoundRecord) -> Result<()> {
        self.write(&Line::Round(Box::new(round.clone())))?;
        self.rounds.push(round);
        Ok(())
    }

    /// Marks the run as finished: the next one begins anew.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn finish(&mut self) -> Result<()> {
        self.write(&Line::Finished)
    }

    /// The rounds so far.
    pub fn rounds(&self) -> &[RoundRecord] {
        &self.rounds
    }

    fn write(&mut self, line: &Line) -> Result<()> {
        let mut text = serde_json::to_string(line)
            .map_err(|e| ExperimentError::Other(format!("a round cannot be recorded: {e}")))?;
        text.push('\n');
        let written = self.file.write_all(text.as_bytes()).and_then(|()| self.file.sync_data());
        written.map_err(ExperimentError::file("write", &self.path))
    }
}

fn difference(old: &Identity, new: &Identity) -> Option<&'static str> {
    if old.plan != new.plan {
        Some("the plan or its options changed")
    } else if old.commit != new.commit {
        Some("the commit changed")
    } else if old.programs != new.programs {
        Some("the programs were built anew")
    } else {
        None
    }
}

/// What a journal holds.
struct Found {
    identity: Identity,
    rounds: Vec<RoundRecord>,
    finished: bool,
    /// Bytes up to the end of the last whole line.
    whole: u64,
}

/// Reads a journal; `None` if there is none or its first line is not one's.
fn read(path: &Path) -> Result<Option<Found>> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(ExperimentError::file("read", path)(e)),
    };
    let unreadable =
        Identity { plan: String::new(), commit: String::new(), programs: String::new() };
    let mut found = Found { identity: unreadable, rounds: vec![], finished: false, whole: 0 };
    for line in text.split_inclusive('\n').take_while(|l| l.ends_with('\n')) {
        match serde_json::from_str(line) {
            Ok(Line::Begun(identity)) => found.identity = identity,
            Ok(Line::Round(round)) => found.rounds.push(*round),
            Ok(Line::Finished) => found.finished = true,
            Err(_) => break,
        }
        found.whole += line.len() as u64;
    }
    Ok(Some(found))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn identity(commit: &str) -> Identity {
        Identity { plan: "p".into(), commit: commit.into(), programs: "x".into() }
    }

    fn round(seed: u64) -> RoundRecord {
        let (cell, cases) = (String::new(), BTreeMap::new());
        RoundRecord { cell, cases, seed, repeat: 0, limit: None, arms: vec![] }
    }

    #[test]
    fn an_unfinished_run_goes_on_even_after_a_torn_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/rounds.jsonl");
        let (mut journal, opened) = Journal::open(&path, &identity("c"), false).unwrap();
        assert_eq!(opened, Opened::New);
        journal.append(round(1)).unwrap();
        journal.append(round(2)).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, &text[..text.len() - 3]).unwrap();

        let (mut journal, opened) = Journal::open(&path, &identity("c"), false).unwrap();
        assert_eq!(opened, Opened::Resumed(1));
        journal.append(round(3)).unwrap();
        let (journal, opened) = Journal::open(&path, &identity("c"), false).unwrap();
        assert_eq!(opened, Opened::Resumed(2));
        assert_eq!(journal.rounds(), [round(1), round(3)]);
    }

    #[test]
    fn another_commit_a_finished_run_and_fresh_begin_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rounds.jsonl");
        let (mut journal, _) = Journal::open(&path, &identity("c"), false).unwrap();
        journal.append(round(1)).unwrap();
        let (mut journal, opened) = Journal::open(&path, &identity("d"), false).unwrap();
        assert_eq!(opened, Opened::PutAside("the commit changed"));
        assert_eq!(journal.rounds(), []);
        assert!(path.with_extension("jsonl.old").exists());

        journal.append(round(1)).unwrap();
        let (mut journal, opened) = Journal::open(&path, &identity("d"), true).unwrap();
        assert!(matches!(opened, Opened::PutAside(_)) && journal.rounds().is_empty());
        journal.finish().unwrap();
        let (_, opened) = Journal::open(&path, &identity("d"), false).unwrap();
        assert_eq!(opened, Opened::New);
    }

    #[test]
    fn a_strange_file_is_put_aside() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rounds.jsonl");
        fs::write(&path, "no json\n").unwrap();
        let (_, opened) = Journal::open(&path, &identity("c"), false).unwrap();
        assert!(matches!(opened, Opened::PutAside(_)));
    }
}
