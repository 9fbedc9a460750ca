//! The journal of a part: which bytes are safely on the disk, and their hashes.
//!
//! It consists of lines of text, `CHECK JSON`. `CHECK` is 16 hexadecimal digits: the first 8 bytes of BLAKE3(previous
//! check ‖ JSON). The chain reveals a torn tail and altered, lost and inserted lines: everything from the first wrong
//! line on is ignored, and its bytes are fetched again. It protects against accidents only; anybody who may write both
//! files can forge both, which only a digest given by the user reveals.
//!
//! The first line holds the job and the key, each further line one range.

use super::{
    PartError, PartKey,
    digest::{parse_hex, to_hex},
    leftover::{self, Leftover},
};
use serde::{Deserialize, Serialize};
use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    ops::Range,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};
use thalweg_base::job::Job;

const FORMAT: &str = "thalweg-part";
const VERSION: u32 = 1;
/// The most bytes read of a journal: over a million records, ten days of one a second. The rest is treated as a torn
/// tail.
const MAX_SIZE: u64 = 256 << 20;
/// The check before the first line.
const ROOT: [u8; 8] = [0; 8];

/// The content of the first line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Header {
    format: String,
    version: u32,
    job: Job,
    key: PartKey,
}

/// One range of synced bytes, its hash, and the path that delivered it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) range: Range<u64>,
    pub(super) blake3: [u8; 32],
    /// Empty if the path is unknown.
    pub(super) by: String,
}

#[derive(Serialize, Deserialize)]
struct RecordLine {
    start: u64,
    end: u64,
    blake3: String,
    /// Absent in journals of versions that did not record paths.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    by: String,
}

/// The valid content of a journal.
pub(super) struct JournalContents {
    pub(super) job: Job,
    pub(super) key: PartKey,
    pub(super) records: Vec<Record>,
    /// False if anything behind the last valid line was ignored.
    pub(super) whole: bool,
    check: [u8; 8],
}

/// A journal open for appending.
pub(super) struct Journal {
    file: File,
    path: PathBuf,
    check: [u8; 8],
}

impl Journal {
    /// Durably writes a new journal with these records, which replaces any older one.
    ///
    /// It is written under another name and renamed, so that a crash leaves the old or the new one.
    pub(super) fn create(
        path: &Path,
        job: &Job,
        key: &PartKey,
        records: &[Record],
    ) -> Result<Self, PartError> {
        let new = new_name(path);
        // The header may contain a signed URL, so only the owner may read it.
        super::part_files::remove(&new)?;
        let mut options = OpenOptions::new();
        options.create_new(true).write(true).mode(0o600);
        let file = options.open(&new).map_err(PartError::write(&new, 0))?;
        let mut journal = Self { file, path: new.clone(), check: ROOT };
        let header =
            Header { format: FORMAT.into(), version: VERSION, job: job.clone(), key: key.clone() };
        let mut text = String::new();
        journal.line(&mut text, &header)?;
        journal.lines(&mut text, records)?;
        journal.put(&text)?;
        std::fs::rename(&new, path).map_err(PartError::io("rename", &new))?;
        super::part_files::sync_directory(path)?;
        Ok(Self { path: path.to_owned(), ..journal })
    }

    /// Opens the journal that was read as `contents`, which must be whole, for appending.
    pub(super) fn append_to(path: &Path, contents: &JournalContents) -> Result<Self, PartError> {
        let Leftover::Ours(file) = leftover::open(path, OpenOptions::new().append(true))? else {
            let what = "another file than the journal that was just read";
            return Err(PartError::NotAFile { path: path.to_owned(), what });
        };
        Ok(Self { file, path: path.to_owned(), check: contents.check })
    }

    /// The check of the last line, with which the journal can be [reopened](Self::reopen).
    pub(super) fn check(&self) -> [u8; 8] {
        self.check
    }

    /// Opens the journal whose last line has this check for appending.
    pub(super) fn reopen(path: &Path, check: [u8; 8]) -> Result<Self, PartError> {
        let Leftover::Ours(file) = leftover::open(path, OpenOptions::new().append(true))? else {
            let what = "another file than the journal that was just written";
            return Err(PartError::NotAFile { path: path.to_owned(), what });
        };
        Ok(Self { file, path: path.to_owned(), check })
    }

    /// Removes the journal from `path`, unless another process has put its own there.
    pub(super) fn remove(&self, path: &Path) -> Result<(), PartError> {
        if super::part_files::is_name_of(path, &self.file)? {
            super::part_files::remove(path)
        } else {
            Ok(())
        }
    }

    /// Durably appends records. Their bytes must have been synced before.
    pub(super) fn append(&mut self, records: &[Record]) -> Result<(), PartError> {
        let mut text = String::new();
        self.lines(&mut text, records)?;
        self.put(&text)
    }

    fn lines(&mut self, text: &mut String, records: &[Record]) -> Result<(), PartError> {
        records.iter().try_for_each(|r| {
            let (start, end, blake3) = (r.range.start, r.range.end, to_hex(&r.blake3));
            self.line(text, &RecordLine { start, end, blake3, by: r.by.clone() })
        })
    }

    fn line(&mut self, text: &mut String, value: &impl Serialize) -> Result<(), PartError> {
        let json = serde_json::to_string(value).map_err(io::Error::other);
        let json = json.map_err(PartError::io("write", &self.path))?;
        self.check = chain(self.check, &json);
        text.push_str(&format!("{} {json}\n", to_hex(&self.check)));
        Ok(())
    }

    fn put(&mut self, text: &str) -> Result<(), PartError> {
        self.file.write_all(text.as_bytes()).map_err(PartError::write(&self.path, 0))?;
        self.file.sync_data().map_err(PartError::io("sync", &self.path))
    }
}

/// The name under which a journal is written before it replaces the one at `path`.
pub(super) fn new_name(path: &Path) -> PathBuf {
    path.with_extension("thalweg-journal.new")
}

fn chain(previous: [u8; 8], json: &str) -> [u8; 8] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&previous).update(json.as_bytes());
    let mut check = [0; 8];
    check.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    check
}

/// Reads the valid lines of the journal at `path`; `None` if there is no journal of this user, or its header is not
/// valid.
///
/// # Errors
/// If it is this user's and cannot be read.
pub(super) fn read(path: &Path) -> Result<Option<JournalContents>, PartError> {
    let Leftover::Ours(file) = leftover::open(path, OpenOptions::new().read(true))? else {
        return Ok(None);
    };
    let mut bytes = Vec::new();
    file.take(MAX_SIZE).read_to_end(&mut bytes).map_err(PartError::io("read", path))?;
    Ok(parse(&bytes))
}

fn parse(bytes: &[u8]) -> Option<JournalContents> {
    let mut lines = bytes.split_inclusive(|b| *b == b'\n');
    let (check, json) = good_line(lines.next()?, ROOT)?;
    let header: Header = serde_json::from_str(json).ok()?;
    if header.format != FORMAT || header.version != VERSION {
        return None;
    }
    let (job, key) = (header.job, header.key);
    let mut contents = JournalContents { job, key, records: Vec::new(), whole: true, check };
    for line in lines {
        let Some((check, record)) = good_record(line, contents.check) else {
            contents.whole = false;
            break;
        };
        contents.check = check;
        contents.records.push(record);
    }
    Some(contents)
}

fn good_record(line: &[u8], previous: [u8; 8]) -> Option<([u8; 8], Record)> {
    let (check, json) = good_line(line, previous)?;
    let line: RecordLine = serde_json::from_str(json).ok()?;
    let range = line.start..line.end;
    let record = Record { range, blake3: parse_hex(&line.blake3)?, by: line.by };
    (!record.range.is_empty()).then_some((check, record))
}

/// The JSON of a complete line whose check is right.
fn good_line(line: &[u8], previous: [u8; 8]) -> Option<([u8; 8], &str)> {
    let text = std::str::from_utf8(line.strip_suffix(b"\n")?).ok()?;
    let (digits, json) = text.split_once(' ')?;
    let check = chain(previous, json);
    (to_hex(&check) == digits).then_some((check, json))
}
