//! The jobs on disk: a journal with one line for each change of a job, synced before anybody is told of it.
//!
//! A line is a digest of 16 hexadecimal digits, a blank, a record as JSON, and a line feed. Writers that wait at the same
//! time share one sync.

use crate::queue::Entry;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::mpsc,
    thread,
};
use thalweg_base::durable;

/// The largest journal, bytes; with 10,000 jobs of 10 kB it has 100 MB before it is compacted.
const MAX_BYTES: usize = 1 << 30;

/// A journal smaller than this is not compacted while it is in use, bytes.
const MIN_COMPACTION: u64 = 8 << 20;

/// The most records that wait for the writer. Each caller waits for its own, so that there are a few.
const MAX_WAITING: usize = 4096;

/// The digits of a digest, and the blank after it.
const PREFIX: usize = 17;

/// A change of a job.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Record {
    /// The job as it is now.
    Job(Box<Entry>),
    Forgotten(u64),
    /// The number that the next job gets.
    NextId(u64),
}

/// What a journal contains.
#[derive(Debug, Default)]
pub struct Content {
    pub entries: BTreeMap<u64, Entry>,
    pub next_id: u64,
    /// Lines that could not be read. One, the last, is normal after a power failure.
    pub damaged: usize,
}

/// A journal that is open for writing.
#[derive(Debug)]
pub struct Journal {
    sender: mpsc::SyncSender<Request>,
}

/// Lines to write, and who waits for them.
struct Request {
    line: Vec<u8>,
    done: mpsc::SyncSender<io::Result<()>>,
}

/// A write that is under way.
#[derive(Debug)]
#[must_use = "the record is on disk only after `wait`"]
pub struct Writing(Option<mpsc::Receiver<io::Result<()>>>);

impl Journal {
    /// Reads the journal in `directory`, which must exist, compacts it, and opens it for writing.
    ///
    /// # Errors
    /// The system's.
    pub fn open(directory: &Path) -> io::Result<(Self, Content)> {
        let file = directory.join("journal");
        let bytes = durable::read(&file, MAX_BYTES)?.unwrap_or_default();
        let content = Content::parse(&bytes);
        if content.damaged > 1 {
            // More than a torn end: the original is kept for a look, and stays until the new one is complete.
            keep_damaged(&file)?;
        }
        let compact = content.lines();
        durable::replace(&file, &compact)?;
        let (sender, receiver) = mpsc::sync_channel(MAX_WAITING);
        let mut writer = Writer::open(file, compact.len() as u64)?;
        thread::Builder::new().name("jobs-journal".into()).spawn(move || writer.run(&receiver))?;
        Ok((Self { sender }, content))
    }

    /// Begins to write the present state of a job. Writes become durable in the order of these calls.
    pub fn put(&self, entry: &Entry) -> Writing {
        self.write(&Record::Job(Box::new(entry.clone())))
    }

    /// Begins to write that a job was forgotten.
    pub fn forget(&self, id: u64) -> Writing {
        self.write(&Record::Forgotten(id))
    }

    fn write(&self, record: &Record) -> Writing {
        let (done, waiting) = mpsc::sync_channel(1);
        match self.sender.send(Request { line: line(record), done }) {
            Ok(()) => Writing(Some(waiting)),
            Err(_) => Writing(None),
        }
    }
}

impl Writing {
    /// Waits until the record is on disk.
    ///
    /// # Errors
    /// The system's.
    pub fn wait(self) -> io::Result<()> {
        let ended = || io::Error::other("the journal's writer has ended");
        self.0.ok_or_else(ended)?.recv().map_err(|_| ended())?
    }
}

impl Content {
    fn parse(bytes: &[u8]) -> Self {
        let mut content = Self { next_id: 1, ..Self::default() };
        let mut lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
        // After the last line feed there is nothing, or the begin of a line.
        let rest = lines.pop().unwrap_or_default();
        content.damaged += usize::from(!rest.is_empty());
        for line in lines {
            match record(line) {
                Some(record) => content.apply(record),
                None => content.damaged += 1,
            }
        }
        content
    }

    fn apply(&mut self, record: Record) {
        match record {
            Record::Job(entry) => {
                self.next_id = self.next_id.max(entry.job.id + 1);
                self.entries.insert(entry.job.id, *entry);
            }
            Record::Forgotten(id) => _ = self.entries.remove(&id),
            Record::NextId(id) => self.next_id = self.next_id.max(id),
        }
    }

    fn lines(&self) -> Vec<u8> {
        let jobs = self.entries.values().map(|entry| Record::Job(Box::new(entry.clone())));
        let records = [Record::NextId(self.next_id)].into_iter().chain(jobs);
        records.flat_map(|record| line(&record)).collect()
    }
}

fn line(record: &Record) -> Vec<u8> {
    // A record has no map with other keys than texts, and nothing else can fail.
    let json = serde_json::to_vec(record).unwrap_or_default();
    let digest = blake3::hash(&json).to_hex();
    [&digest.as_bytes()[..PREFIX - 1], b" ", &json, b"\n"].concat()
}

fn record(line: &[u8]) -> Option<Record> {
    let (digest, json) = line.split_at_checked(PREFIX)?;
    let wanted = blake3::hash(json).to_hex();
    if digest[..PREFIX - 1] != wanted.as_bytes()[..PREFIX - 1] {
        return None;
    }
    serde_json::from_slice(json).ok()
}

/// Gives a damaged journal a second name, `journal.damaged` or the first free one with a number.
fn keep_damaged(file: &Path) -> io::Result<()> {
    let names = (0..1000).map(|n| match n {
        0 => "damaged".to_owned(),
        n => format!("damaged-{n}"),
    });
    for name in names {
        match fs::hard_link(file, file.with_extension(name)) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            linked => return linked,
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// The thread that writes.
struct Writer {
    path: PathBuf,
    file: File,
    /// The file's size, bytes.
    bytes: u64,
    /// Its size after the last compaction.
    compact: u64,
    /// Whether the end of the file may be torn.
    is_torn: bool,
    /// Whether the file may have been replaced by another one of this name, which is the one to write to.
    must_reopen: bool,
}

impl Writer {
    fn open(path: PathBuf, bytes: u64) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).open(&path)?;
        Ok(Self { path, file, bytes, compact: bytes, is_torn: false, must_reopen: false })
    }

    fn run(&mut self, requests: &mpsc::Receiver<Request>) {
        while let Ok(first) = requests.recv() {
            let batch: Vec<Request> = std::iter::once(first).chain(requests.try_iter()).collect();
            let lines: Vec<u8> = batch.iter().flat_map(|r| r.line.iter().copied()).collect();
            let result = self.append(&lines);
            for request in batch {
                let result = result.as_ref().map_err(|e| io::Error::new(e.kind(), e.to_string()));
                // Who no longer waits does not want to know.
                _ = request.done.send(result.copied());
            }
        }
    }

    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        if self.must_reopen {
            let bytes = fs::metadata(&self.path)?.len();
            *self = Self::open(self.path.clone(), bytes)?;
        }
        if self.is_torn {
            self.file.set_len(self.bytes)?;
            self.is_torn = false;
        }
        let written = self.file.write_all(lines).and_then(|()| self.file.sync_data());
        if written.is_err() {
            self.is_torn = true;
            // The next write tries again.
            _ = self.file.set_len(self.bytes).map(|()| self.is_torn = false);
            return written;
        }
        self.bytes += lines.len() as u64;
        if self.bytes > MIN_COMPACTION.max(8 * self.compact).min(MAX_BYTES as u64 / 2) {
            // Without room for a second file the present one goes on.
            _ = self.compact();
        }
        Ok(())
    }

    fn compact(&mut self) -> io::Result<()> {
        let bytes = durable::read(&self.path, MAX_BYTES)?.unwrap_or_default();
        let lines = Content::parse(&bytes).lines();
        // If replacing or opening fails, the file of this name may be either one.
        self.must_reopen = true;
        durable::replace(&self.path, &lines)?;
        *self = Self::open(self.path.clone(), lines.len() as u64)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Job, JobRequest, JobState, Priority};
    use jiff::Timestamp;

    fn entry(id: u64) -> Entry {
        let arguments = vec!["get".to_owned(), format!("https://a/{id}\n")];
        let priority = Priority::Normal;
        let request =
            JobRequest { arguments, directory: "/".into(), priority, at: None, between: None };
        Entry::new(Job::new(id, request, Timestamp::UNIX_EPOCH))
    }

    fn ids(content: &Content) -> Vec<u64> {
        content.entries.keys().copied().collect()
    }

    #[test]
    fn what_was_written_is_read_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let (journal, content) = Journal::open(dir.path()).unwrap();
        assert_eq!((content.next_id, content.entries.len()), (1, 0));
        let writes: Vec<Writing> = (1..=20).map(|id| journal.put(&entry(id))).collect();
        writes.into_iter().for_each(|write| write.wait().unwrap());
        journal.forget(20).wait().unwrap();
        let mut second = entry(2);
        second.job.state = JobState::Paused;
        journal.put(&second).wait().unwrap();
        drop(journal);
        let (_, content) = Journal::open(dir.path()).unwrap();
        assert_eq!(ids(&content), (1..=19).collect::<Vec<_>>());
        assert_eq!(content.entries[&2].job, second.job);
        assert_eq!(
            (content.next_id, content.damaged),
            (21, 0),
            "the number of a forgotten job is not used again"
        );
    }

    #[test]
    fn a_journal_cut_anywhere_keeps_all_lines_before() {
        let dir = tempfile::tempdir().unwrap();
        let (journal, _) = Journal::open(dir.path()).unwrap();
        (1..=3).for_each(|id| journal.put(&entry(id)).wait().unwrap());
        drop(journal);
        let whole = fs::read(dir.path().join("journal")).unwrap();
        for cut in 0..whole.len() {
            let complete = whole[..cut].iter().filter(|byte| **byte == b'\n').count();
            let content = Content::parse(&whole[..cut]);
            assert_eq!(content.entries.len(), complete.saturating_sub(1), "{cut}");
            assert!(content.damaged <= 1);
        }
    }

    #[test]
    fn a_damaged_line_loses_only_itself_and_the_file_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let (journal, _) = Journal::open(dir.path()).unwrap();
        (1..=3).for_each(|id| journal.put(&entry(id)).wait().unwrap());
        drop(journal);
        let file = dir.path().join("journal");
        let mut bytes = fs::read(&file).unwrap();
        let second = bytes.split(|b| *b == b'\n').take(2).map(|l| l.len() + 1).sum::<usize>();
        bytes[second + 30] ^= 1;
        bytes.truncate(bytes.len() - 3);
        fs::write(&file, &bytes).unwrap();
        let (_, content) = Journal::open(dir.path()).unwrap();
        assert_eq!((ids(&content), content.damaged), (vec![1], 2));
        assert!(dir.path().join("journal.damaged").exists());
    }

    #[test]
    fn a_long_journal_is_compacted_while_it_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let (journal, _) = Journal::open(dir.path()).unwrap();
        let mut large = entry(1);
        large.job.arguments.push("x".repeat(1 << 20));
        for _ in 0..12 {
            journal.put(&large).wait().unwrap();
        }
        let size = fs::metadata(dir.path().join("journal")).unwrap().len();
        assert!(size < 10 << 20, "{size}");
        drop(journal);
        assert_eq!(ids(&Journal::open(dir.path()).unwrap().1), [1]);
    }
}
