//! An append-only file whose records are durable once acknowledged; many appends share one sync of the disk.

use blake3::hash;
use std::{
    fs::{File, OpenOptions},
    io::{self, Read as _},
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::Path,
    sync::Arc,
    thread,
};
use tokio::sync::{mpsc, oneshot};

/// The maximum number of appends that wait for the disk: those of some thousand clients at once, about 2 MB. Beyond it,
/// further appends wait.
const QUEUE: usize = 4096;

/// The maximum number of bytes written per sync: about as much as a disk writes during a sync.
const GROUP: usize = 4 << 20;

/// The length of the BLAKE3 check that follows each record's length field and detects torn writes.
const CHECK: usize = 8;

/// The maximum size of a record, bytes; the longest is a receipt delivery with long paths.
const MAX_RECORD: usize = 1 << 20;

/// An append-only file of records `length:u32 ‖ check:8 ‖ bytes`; cheap to clone.
///
/// Contract: after any crash, [`read`] finds all records for which [`Journal::append`] returned `Ok`, in the order in
/// which they were written. Appends that wait during a sync share the next one (group commit).
#[derive(Clone, Debug)]
pub(super) struct Journal {
    queue: mpsc::Sender<PendingAppend>,
}

#[derive(Debug)]
struct PendingAppend {
    records: Vec<Vec<u8>>,
    done: oneshot::Sender<Result<(), Arc<io::Error>>>,
}

/// The content of a file.
#[derive(Debug, Default)]
pub(super) struct JournalContent {
    /// The first record, which identifies the owner.
    pub head: Option<Vec<u8>>,
    /// The other records, in order.
    pub records: Vec<Vec<u8>>,
    /// The number of bytes after the last complete record.
    pub torn: u64,
    /// The number of bytes up to there.
    whole: u64,
}

/// Reads the file, even while others append. A missing file counts as an empty one.
///
/// # Errors
/// Returns a system error.
pub(super) fn read(file: &Path) -> io::Result<JournalContent> {
    let mut bytes = Vec::new();
    match File::open(file) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(JournalContent::default()),
        opened => _ = opened?.read_to_end(&mut bytes)?,
    }
    let (mut records, mut at) = (Vec::new(), 0);
    while let Some(record) = record_at(&bytes[at..]) {
        at += 4 + CHECK + record.len();
        records.push(record.to_vec());
    }
    let head = (!records.is_empty()).then(|| records.remove(0));
    Ok(JournalContent { head, records, torn: (bytes.len() - at) as u64, whole: at as u64 })
}

/// Replaces all records atomically; no process may have the journal open.
///
/// # Errors
/// Returns a system error; then the file is unchanged.
pub(super) fn rewrite(file: &Path, head: &[u8], records: &[Vec<u8>]) -> io::Result<()> {
    let all = std::iter::once(head).chain(records.iter().map(Vec::as_slice));
    let bytes: Vec<u8> = all.flat_map(framed).collect();
    thalweg_base::durable::replace(file, &bytes)
}

fn record_at(bytes: &[u8]) -> Option<&[u8]> {
    let (head, rest) = bytes.split_first_chunk::<4>()?;
    let length = u32::from_be_bytes(*head) as usize;
    let (check, rest) = rest.split_first_chunk::<CHECK>()?;
    let record = rest.get(..length).filter(|_| (1..=MAX_RECORD).contains(&length))?;
    (hash(record).as_bytes()[..CHECK] == *check).then_some(record)
}

impl Journal {
    /// Opens or creates the file, and returns its content. `head` is its first record, which names its owner (a key).
    /// Bytes after the last complete record are cut off; a copy of the whole file is kept as `FILE.torn`.
    ///
    /// `before` is a directory whose filesystem is synced before each group of records is written, because the records
    /// refer to files there.
    ///
    /// # Errors
    /// Returns a system error, or `InvalidData` if the file belongs to another owner.
    pub fn open(
        path: &Path,
        head: &[u8],
        before: Option<&Path>,
    ) -> io::Result<(Self, JournalContent)> {
        let found = read(path)?;
        if found.head.as_ref().is_some_and(|found| found != head) {
            let why = format!(
                "{} belongs to another key than this node's: restore that key, or move the box's \
                 directory away to begin anew",
                path.display()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(path)?;
        if found.torn > 0 {
            std::fs::copy(path, path.with_extension("torn"))?;
            file.set_len(found.whole)?;
        }
        file.sync_all()?;
        thalweg_base::durable::sync_directory(path)?;
        let before = before.map(File::open).transpose()?;
        let (queue, waiting) = mpsc::channel(QUEUE);
        let mut writer = Writer { file, before, end: found.whole };
        if found.head.is_none() {
            writer.write(&framed(head))?;
        }
        thread::Builder::new().name("journal".into()).spawn(move || writer.run(waiting))?;
        Ok((Self { queue }, found))
    }

    /// Appends records; returns when they are durable.
    ///
    /// # Errors
    /// Returns a system error; then none of them is in the file. If the future is dropped, the records may still be
    /// appended.
    pub async fn append(&self, records: Vec<Vec<u8>>) -> Result<(), Arc<io::Error>> {
        let (done, answer) = oneshot::channel();
        let gone = || Arc::new(io::Error::other("the journal's writer has ended"));
        self.queue.send(PendingAppend { records, done }).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }
}

struct Writer {
    file: File,
    before: Option<File>,
    end: u64,
}

impl Writer {
    /// Writes groups of appends until every [`Journal`] of the file is dropped.
    fn run(mut self, mut waiting: mpsc::Receiver<PendingAppend>) {
        while let Some(first) = waiting.blocking_recv() {
            let mut group = AppendGroup::default();
            group.take(first);
            while group.bytes.len() < GROUP {
                let Ok(next) = waiting.try_recv() else { break };
                group.take(next);
            }
            let written = self.write(&group.bytes).map_err(Arc::new);
            for done in group.done {
                // A caller that has left does not need the answer.
                _ = done.send(written.clone());
            }
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Some(before) = &self.before {
            rustix::fs::syncfs(before)?;
        }
        let written = self.file.write_all_at(bytes, self.end).and_then(|()| self.file.sync_data());
        match &written {
            Ok(()) => self.end += bytes.len() as u64,
            // The records were not acknowledged, so parts of them must not be found later.
            Err(_) => self.file.set_len(self.end)?,
        }
        written
    }
}

fn framed(record: &[u8]) -> Vec<u8> {
    let check = hash(record);
    [&(record.len() as u32).to_be_bytes(), &check.as_bytes()[..CHECK], record].concat()
}

#[derive(Default)]
struct AppendGroup {
    bytes: Vec<u8>,
    done: Vec<oneshot::Sender<Result<(), Arc<io::Error>>>>,
}

impl AppendGroup {
    fn take(&mut self, waiting: PendingAppend) {
        waiting.records.iter().for_each(|record| self.bytes.extend(framed(record)));
        self.done.push(waiting.done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs;

    #[tokio::test]
    async fn acknowledged_records_are_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("log");
        let (journal, found) = Journal::open(&file, b"me", Some(dir.path())).unwrap();
        assert!(found.records.is_empty());
        let all: Vec<_> = (0..100_u32).map(|n| n.to_be_bytes().to_vec()).collect();
        let appends = all.iter().map(|record| journal.append(vec![record.clone()]));
        assert!(futures_util::future::join_all(appends).await.iter().all(Result::is_ok));
        let mut records = read(&file).unwrap().records;
        records.sort();
        assert_eq!(records, all);
    }

    #[tokio::test]
    async fn a_torn_end_is_copied_and_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("log");
        let (journal, _) = Journal::open(&file, b"me", None).unwrap();
        journal.append(vec![b"one".to_vec()]).await.unwrap();
        drop(journal);
        let whole = fs::read(&file).unwrap();
        fs::write(&file, [&whole[..], &[0, 0, 0, 9, 1, 2]].concat()).unwrap();
        let (journal, found) = Journal::open(&file, b"me", None).unwrap();
        assert_eq!((found.records.len(), found.torn), (1, 6));
        assert_eq!(fs::read(file.with_extension("torn")).unwrap().len(), whole.len() + 6);
        journal.append(vec![b"two".to_vec()]).await.unwrap();
        assert_eq!(read(&file).unwrap().records, [b"one".to_vec(), b"two".to_vec()]);
        let other = Journal::open(&file, b"you", None).unwrap_err();
        assert!(other.to_string().contains("another key"), "{other}");
    }

    #[tokio::test]
    async fn a_failed_write_is_reported_and_leaves_nothing() {
        // A read-only file stands for a full disk.
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("log");
        let (journal, _) = Journal::open(&file, b"me", None).unwrap();
        journal.append(vec![b"one".to_vec()]).await.unwrap();
        let full = Writer { file: File::open(&file).unwrap(), before: None, end: 29 };
        let (queue, waiting) = mpsc::channel(1);
        let thread = thread::spawn(move || full.run(waiting));
        let unwritable = Journal { queue };
        unwritable.append(vec![b"two".to_vec()]).await.unwrap_err();
        drop(unwritable);
        thread.join().unwrap();
        assert_eq!(read(&file).unwrap().records, [b"one".to_vec()]);
    }

    proptest! {
        #[test]
        fn any_bytes_at_the_end_leave_earlier_records_intact(bytes: Vec<u8>, cut in 0_usize..40) {
            let dir = tempfile::tempdir().unwrap();
            let file = dir.path().join("log");
            let mut group = AppendGroup::default();
            let (done, _answer) = oneshot::channel();
            group.take(PendingAppend { records: vec![b"first".to_vec(), b"second".to_vec()], done });
            let whole = group.bytes.len();
            let cut = cut.min(whole);
            fs::write(&file, [&group.bytes[..whole - cut], &bytes].concat()).unwrap();
            let found = read(&file).unwrap();
            let intact = found.head == Some(b"first".to_vec()) && found.records.starts_with(&[b"second".to_vec()]);
            prop_assert!(cut > 0 || intact);
        }
    }
}
