//! The journal: a file of finished rounds, from which an interrupted run resumes.
//!
//! It has text lines of the form `CHECK JSON`. `CHECK` is 16 hexadecimal digits: the first 8 bytes of BLAKE3(previous
//! check ‖ JSON). An altered, lost or inserted line breaks the chain: all lines from there on are ignored, their rounds
//! run again, and the caller is told. This protects against accidents and careless edits, not against an attacker, who
//! can compute the checks as well.

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

/// The inputs of a round. Rounds of two runs may be combined only if all of them are equal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// BLAKE3 of the plan, the topology and the options that change a round.
    pub plan: String,
    /// The sources, from [`machine::sources`](crate::machine::sources).
    pub commit: String,
    /// BLAKE3 of our programs, because a dirty tree may change between two runs.
    pub programs: String,
}

/// The check of a line; before the first line it is zero.
type LineCheck = [u8; 8];

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
pub enum JournalOpening {
    /// There was no journal, or a finished one.
    New,
    /// An unfinished run with this many rounds is resumed.
    Resumed(usize),
    /// An unfinished run is resumed after this many rounds, because the next line is torn or altered. It and all later
    /// lines are dropped, and their rounds run again.
    Cut(usize),
    /// An unfinished run was renamed, for this reason.
    PutAside(&'static str),
}

/// A journal, open for appending.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    check: LineCheck,
    rounds: Vec<RoundRecord>,
}

impl Journal {
    /// Opens the journal at `path`. Resumes it if it is an unfinished run with the same `identity` and `fresh` is not
    /// set; otherwise begins a new one, and renames the existing file to `….old`.
    ///
    /// # Errors
    /// If the file cannot be read or written.
    pub fn open(path: &Path, identity: &Identity, fresh: bool) -> Result<(Self, JournalOpening)> {
        let found = read(path)?;
        let opened = match &found {
            JournalContents::Nothing => JournalOpening::New,
            JournalContents::Invalid => {
                JournalOpening::PutAside("this version cannot read the old file")
            }
            JournalContents::Run(old) if old.finished => JournalOpening::New,
            JournalContents::Run(_) if fresh => {
                JournalOpening::PutAside("a fresh run was requested")
            }
            JournalContents::Run(old) => match (difference(&old.identity, identity), old.sound) {
                (Some(why), _) => JournalOpening::PutAside(why),
                (None, true) => JournalOpening::Resumed(old.rounds.len()),
                (None, false) => JournalOpening::Cut(old.rounds.len()),
            },
        };
        let journal = match (found, &opened) {
            (JournalContents::Run(old), JournalOpening::Resumed(_) | JournalOpening::Cut(_)) => {
                Self::append_to(path, old)?
            }
            (found, _) => Self::begin(path, identity, !matches!(found, JournalContents::Nothing))?,
        };
        Ok((journal, opened))
    }

    fn append_to(path: &Path, old: OldRun) -> Result<Self> {
        let file = OpenOptions::new().append(true).open(path);
        let file = file.map_err(ExperimentError::file("open", path))?;
        // Remove invalid lines, so that the next line does not follow a torn one.
        file.set_len(old.good).map_err(ExperimentError::file("truncate", path))?;
        Ok(Self { path: path.to_owned(), file, check: old.check, rounds: old.rounds })
    }

    fn begin(path: &Path, identity: &Identity, exists: bool) -> Result<Self> {
        if exists {
            let aside = path.with_extension("jsonl.old");
            fs::rename(path, aside).map_err(ExperimentError::file("rename", path))?;
        }
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(ExperimentError::file("create", parent))?;
        }
        let file = OpenOptions::new().create_new(true).append(true).open(path);
        let file = file.map_err(ExperimentError::file("create", path))?;
        let check = LineCheck::default();
        let mut journal = Self { path: path.to_owned(), file, check, rounds: vec![] };
        journal.write(&Line::Begun(identity.clone()))?;
        Ok(journal)
    }

    /// Appends a finished round. The round is on disk when this returns.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn append(&mut self, round: RoundRecord) -> Result<()> {
        self.write(&Line::Round(Box::new(round.clone())))?;
        self.rounds.push(round);
        Ok(())
    }

    /// Marks the run as finished, so that the next run begins a new journal.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn finish(&mut self) -> Result<()> {
        self.write(&Line::Finished)
    }

    /// The rounds so far.
    pub fn rounds(&self) -> &[RoundRecord] {
        &self.rounds
    }

    fn write(&mut self, line: &Line) -> Result<()> {
        let json = serde_json::to_string(line)
            .map_err(|e| ExperimentError::Other(format!("cannot record a round: {e}")))?;
        self.check = chain(self.check, &json);
        let text = format!("{} {json}\n", digits(self.check));
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
        Some("the programs were rebuilt")
    } else {
        None
    }
}

fn chain(previous: LineCheck, json: &str) -> LineCheck {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&previous).update(json.as_bytes());
    let mut check = LineCheck::default();
    check.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    check
}

fn digits(check: LineCheck) -> String {
    format!("{:016x}", u64::from_be_bytes(check))
}

/// The contents of a journal's path.
enum JournalContents {
    /// No file.
    Nothing,
    /// A file whose first line is not a journal's.
    Invalid,
    Run(OldRun),
}

/// The contents of a journal up to the last valid line.
struct OldRun {
    identity: Identity,
    rounds: Vec<RoundRecord>,
    finished: bool,
    /// Whether every line is valid.
    sound: bool,
    /// Bytes up to the end of the last valid line.
    good: u64,
    check: LineCheck,
}

/// Reads a journal up to the first invalid line.
fn read(path: &Path) -> Result<JournalContents> {
    match fs::read(path) {
        Ok(bytes) => Ok(parse(&bytes).map_or(JournalContents::Invalid, JournalContents::Run)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(JournalContents::Nothing),
        Err(e) => Err(ExperimentError::file("read", path)(e)),
    }
}

fn parse(bytes: &[u8]) -> Option<OldRun> {
    let mut lines = bytes.split_inclusive(|b| *b == b'\n');
    let first = lines.next()?;
    let (check, Line::Begun(identity)) = good_line(first, LineCheck::default())? else {
        return None;
    };
    let (rounds, good) = (vec![], first.len() as u64);
    let mut run = OldRun { identity, rounds, finished: false, sound: true, good, check };
    for line in lines {
        match good_line(line, run.check) {
            Some((check, Line::Round(round))) => {
                run.rounds.push(*round);
                run.check = check;
            }
            Some((check, Line::Finished)) => (run.finished, run.check) = (true, check),
            Some((_, Line::Begun(_))) | None => {
                run.sound = false;
                break;
            }
        }
        run.good += line.len() as u64;
    }
    Some(run)
}

/// Parses a line; `None` if it is incomplete or its check is wrong.
fn good_line(line: &[u8], previous: LineCheck) -> Option<(LineCheck, Line)> {
    let text = std::str::from_utf8(line.strip_suffix(b"\n")?).ok()?;
    let (found, json) = text.split_once(' ')?;
    let check = chain(previous, json);
    (digits(check) == found).then_some(())?;
    Some((check, serde_json::from_str(json).ok()?))
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
    fn an_unfinished_run_is_resumed_even_after_a_torn_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/rounds.jsonl");
        let (mut journal, opened) = Journal::open(&path, &identity("c"), false).unwrap();
        assert_eq!(opened, JournalOpening::New);
        journal.append(round(1)).unwrap();
        journal.append(round(2)).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, &text[..text.len() - 3]).unwrap();

        let (mut journal, opened) = Journal::open(&path, &identity("c"), false).unwrap();
        assert_eq!(opened, JournalOpening::Cut(1));
        journal.append(round(3)).unwrap();
        let (journal, opened) = Journal::open(&path, &identity("c"), false).unwrap();
        assert_eq!(opened, JournalOpening::Resumed(2));
        assert_eq!(journal.rounds(), [round(1), round(3)]);
    }

    #[test]
    fn another_commit_or_a_finished_run_or_fresh_begins_a_new_journal() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rounds.jsonl");
        let (mut journal, _) = Journal::open(&path, &identity("c"), false).unwrap();
        journal.append(round(1)).unwrap();
        let (mut journal, opened) = Journal::open(&path, &identity("d"), false).unwrap();
        assert_eq!(opened, JournalOpening::PutAside("the commit changed"));
        assert_eq!(journal.rounds(), []);
        assert!(path.with_extension("jsonl.old").exists());

        journal.append(round(1)).unwrap();
        let (mut journal, opened) = Journal::open(&path, &identity("d"), true).unwrap();
        assert!(matches!(opened, JournalOpening::PutAside(_)) && journal.rounds().is_empty());
        journal.finish().unwrap();
        let (_, opened) = Journal::open(&path, &identity("d"), false).unwrap();
        assert_eq!(opened, JournalOpening::New);
    }

    #[test]
    fn an_altered_or_lost_or_moved_line_invalidates_the_rest() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rounds.jsonl");
        let (mut journal, _) = Journal::open(&path, &identity("c"), false).unwrap();
        (1..=3).for_each(|seed| journal.append(round(seed)).unwrap());
        journal.finish().unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        let altered = text.replace("\"seed\":2", "\"seed\":9");
        assert_ne!(altered, text);
        let lost = [lines[0], lines[1], lines[3], lines[4]].concat();
        let moved = [lines[0], lines[1], lines[3], lines[2], lines[4]].concat();
        for bad in [altered, lost, moved] {
            fs::write(&path, bad).unwrap();
            let (journal, opened) = Journal::open(&path, &identity("c"), false).unwrap();
            assert_eq!(opened, JournalOpening::Cut(1));
            assert_eq!(journal.rounds(), [round(1)]);
            assert_eq!(fs::read_to_string(&path).unwrap(), lines[..2].concat());
        }
    }

    #[test]
    fn a_file_that_is_not_a_journal_is_renamed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rounds.jsonl");
        for strange in [&b""[..], b"no json\n", b"\xff\xfe", b"{\"finished\":null}\n"] {
            fs::write(&path, strange).unwrap();
            let (_, opened) = Journal::open(&path, &identity("c"), false).unwrap();
            assert!(matches!(opened, JournalOpening::PutAside(_)), "{opened:?}");
            assert_eq!(fs::read(path.with_extension("jsonl.old")).unwrap(), strange);
        }
    }
}
