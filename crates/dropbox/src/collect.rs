//! Step 3, collecting, except for the transfer (`thalweg_gather` does it): selects what to request from each node, and
//! checks, decrypts and stores the received data.

use super::{
    BoxFiles, BoxKey, EnvelopeError,
    client::{path_beside, save_evidence},
    receipts::VerifiedReceipt,
    view::View,
};
use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, BufReader, BufWriter, Read as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};
use thalweg_base::locked_file::LockedFile;
use thalweg_wire::{
    bistro::{Commitment, CommitmentHasher, ContentHash, EnvelopeKeys, Evidence, Stamp},
    mesh::Name,
};

/// Above this many submissions at one node, its whole directory is requested, with submissions that are not due,
/// because a list of the paths would not fit into one request.
const MAX_PATHS: usize = 2000;

/// The buffer size for decryption, bytes.
const BUFFER: usize = 1 << 20;

/// The submissions to collect from one node.
#[derive(Debug)]
pub struct Source {
    pub node: Name,
    /// The submissions.
    pub arrivals: Vec<VerifiedReceipt>,
}

/// Lists the submissions to collect by node, each at the node whose receipt arrived first.
pub fn sources(view: &View) -> Vec<Source> {
    by_node(view.due().filter_map(<[VerifiedReceipt]>::first))
}

/// For submissions that could not be collected from the first `asked` nodes with receipts for them, lists the next such
/// node, if there is one.
pub fn next_sources(view: &View, settled: &[SubmissionResult], asked: usize) -> Vec<Source> {
    let failed = settled.iter().filter(|one| one.outcome.is_err());
    by_node(failed.filter_map(|one| view.arrivals.get(&one.number)?.get(asked)))
}

/// Replaces the results of submissions that were requested again from another node. If one failed again, its result
/// keeps both reasons.
pub fn replace_results(settled: &mut [SubmissionResult], again: Vec<SubmissionResult>) {
    let mut again: BTreeMap<u64, _> = again.into_iter().map(|one| (one.number, one)).collect();
    for one in settled {
        let Some(new) = again.remove(&one.number) else { continue };
        one.outcome = match (&one.outcome, new.outcome) {
            (Err(first), Err(then)) => Err(format!("{first}; {then}")),
            (_, outcome) => outcome,
        };
    }
}

fn by_node<'a>(arrivals: impl Iterator<Item = &'a VerifiedReceipt>) -> Vec<Source> {
    let mut nodes: BTreeMap<&Name, Vec<VerifiedReceipt>> = BTreeMap::new();
    for arrival in arrivals {
        nodes.entry(&arrival.receipt.value().node).or_default().push(arrival.clone());
    }
    let source = |(node, arrivals): (&Name, _)| Source { node: node.clone(), arrivals };
    nodes.into_iter().map(source).collect()
}

impl Source {
    /// Absolute paths on the node, in the form that `gather` takes.
    pub fn paths(&self) -> Vec<Vec<u8>> {
        let path = |arrival: &VerifiedReceipt| arrival.delivery.path.clone();
        match (self.arrivals.len() > MAX_PATHS, self.arrivals.first().and_then(data_of)) {
            // `DIR/` stands for the contents of DIR.
            (true, Some(data)) => vec![[&data[..], b"/"].concat()],
            _ => self.arrivals.iter().map(path).collect(),
        }
    }
}

/// Returns `/a/data` for the path `/a/data/xx/ID`.
fn data_of(arrival: &VerifiedReceipt) -> Option<Vec<u8>> {
    let path = &arrival.delivery.path;
    let mut slashes = path.iter().enumerate().rev().filter(|(_, b)| **b == b'/').map(|(at, _)| at);
    slashes.nth(1).map(|at| path[..at].to_vec())
}

/// The result of one submission.
#[derive(Debug)]
pub struct SubmissionResult {
    /// The number of its stamp.
    pub number: u64,
    /// The file's name in the directory, or why it is not there.
    pub outcome: Result<PathBuf, String>,
}

/// Checks the data below `landing` against the commitment, decrypts it, and moves it to its name in `into`, with its
/// receipt beside it. It is durable when [`sync`] has returned. Data that does not match is deleted.
pub fn settle(
    arrival: &VerifiedReceipt,
    landing: &Path,
    into: &Path,
    key: &BoxKey,
) -> SubmissionResult {
    let number = arrival.stamp.value().number;
    SubmissionResult { number, outcome: settled(arrival, landing, into, key) }
}

fn settled(
    arrival: &VerifiedReceipt,
    landing: &Path,
    into: &Path,
    key: &BoxKey,
) -> Result<PathBuf, String> {
    let stamp = arrival.stamp.value();
    let landed = landed(arrival, landing).ok_or_else(|| {
        format!("its data was not received from node `{}`", arrival.receipt.value().node)
    })?;
    let failed = |e: io::Error| format!("{}: {e}", landed.display());
    if commitment(&landed, arrival).map_err(failed)? != stamp.commitment {
        fs::remove_file(&landed).map_err(failed)?;
        let node = &arrival.receipt.value().node;
        return Err(format!("the data of node `{node}` does not match the commitment"));
    }
    let name = format!("{:06}-{}", stamp.number, stamp.label);
    let place = |suffix| {
        let place = path_beside(into, name.as_ref(), suffix);
        place.map_err(|e| format!("cannot write {name}{suffix} into {}: {e}", into.display()))
    };
    let (file, receipt) = (place("")?, place(".receipt")?);
    let opened = landing.join(format!("{}.open", arrival.id().text()));
    let secrets = decrypt(arrival, &landed, &opened, key)
        .map_err(|e| undecrypted(&e, stamp, [&landed, &opened]))?;
    let unkept = |e: io::Error| format!("cannot write {}: {e}", receipt.display());
    save_evidence(&receipt, &evidence(arrival, secrets)).map_err(unkept)?;
    fs::rename(&opened, &file).map_err(failed)?;
    fs::remove_file(&landed).map_err(failed)?;
    Ok(file)
}

/// Returns the message for a failed decryption, and deletes data that is of no further use.
fn undecrypted(error: &EnvelopeError, stamp: &Stamp, [landed, opened]: [&Path; 2]) -> String {
    _ = fs::remove_file(opened);
    if let EnvelopeError::Io(e) = error {
        return format!("cannot decrypt it into {}: {e}", opened.display());
    }
    // It matches its commitment, so no other node has better data.
    _ = fs::remove_file(landed);
    let (number, drop_box) = (stamp.number, &stamp.drop_box);
    format!(
        "cannot decrypt it: {error}; `thalweg drop-box strike {drop_box} {number}` removes it from the box"
    )
}

/// Decrypts the data into `opened`. Returns the keys and the hash of the content.
fn decrypt(
    arrival: &VerifiedReceipt,
    landed: &Path,
    opened: &Path,
    key: &BoxKey,
) -> Result<(EnvelopeKeys, ContentHash), EnvelopeError> {
    let stamp = arrival.stamp.value();
    let from = BufReader::with_capacity(BUFFER, File::open(landed)?);
    let mut options = File::options();
    let options = options.write(true).create(true).truncate(true).mode(0o600);
    let mut to = BufWriter::with_capacity(BUFFER, options.open(opened)?);
    let secrets = super::open(key, &stamp.client, (from, stamp.commitment.size), &mut to)?;
    to.flush()?;
    Ok(secrets)
}

/// The path of the received data, which was requested by its own path or with its directory.
fn landed(arrival: &VerifiedReceipt, landing: &Path) -> Option<PathBuf> {
    let id = arrival.id().text();
    let places = [landing.join(&id), landing.join(&id[..2]).join(&id)];
    // A link is not accepted as data, because a node could make this host read the file it points to.
    let is_file = |place: &PathBuf| fs::symlink_metadata(place).is_ok_and(|found| found.is_file());
    places.into_iter().find(is_file)
}

fn commitment(file: &Path, arrival: &VerifiedReceipt) -> io::Result<Commitment> {
    let client = arrival.stamp.value().client;
    let mut committing = CommitmentHasher::new(&arrival.delivery.nonce, &client);
    let (mut file, mut buffer) = (File::open(file)?, vec![0; 1 << 20]);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(committing.finish()),
            n => committing.update(&buffer[..n]),
        }
    }
}

/// The evidence for the destination: the same as that of the client.
fn evidence(arrival: &VerifiedReceipt, (keys, content): (EnvelopeKeys, ContentHash)) -> Evidence {
    let stamp = arrival.stamp.value();
    Evidence {
        drop_box: stamp.drop_box.clone(),
        destination: arrival.stamp.signer(),
        client: stamp.client,
        label: stamp.label.clone(),
        commitment: stamp.commitment,
        nonce: Some(arrival.delivery.nonce),
        keys: Some(keys),
        content: Some(content),
        stamp: Some(arrival.stamp.clone()),
        receipt: Some(arrival.receipt.clone()),
        sheet: None,
        roster: None,
    }
}

/// Copies data that this node itself stores into the directory that receives the other nodes' data.
///
/// # Errors
/// Returns a system error.
pub fn copy_own_data(arrival: &VerifiedReceipt, landing: &Path) -> io::Result<()> {
    use std::os::unix::ffi::OsStrExt as _;
    let from = Path::new(std::ffi::OsStr::from_bytes(&arrival.delivery.path));
    let to = landing.join(arrival.id().text());
    match fs::hard_link(from, &to) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        // The data is on another filesystem.
        Err(e) if e.kind() == io::ErrorKind::CrossesDevices => copy(from, &to),
        done => done,
    }
}

/// Copies a file; the copy gets its name only when it is complete and on the disk.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let part = to.with_extension("part");
    let copied = fs::copy(from, &part).and_then(|_| File::open(&part)?.sync_all());
    let copied = copied.and_then(|()| fs::rename(&part, to));
    if copied.is_err() {
        // The rest is of no use; the first error is the one to report.
        _ = fs::remove_file(&part);
    }
    copied
}

/// The locks of one collection, which exclude other collections of the same box or into the same directory.
#[derive(Debug)]
pub struct CollectionLock {
    _box: LockedFile,
    _into: LockedFile,
}

impl CollectionLock {
    /// Takes both locks; they are released on drop, or when the process ends.
    ///
    /// # Errors
    /// Returns `WouldBlock` with the name of the lock that another collection holds, or a system error.
    pub fn take(files: &BoxFiles, into: &Path) -> io::Result<Self> {
        let mut options = File::options();
        let book = options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let book = book.open(files.collecting())?;
        let busy = |what: String| {
            move |e: Errno| match e {
                Errno::WOULDBLOCK => io::Error::new(io::ErrorKind::WouldBlock, what),
                e => e.into(),
            }
        };
        let into_file = File::open(into)?;
        let exclusive = FlockOperation::NonBlockingLockExclusive;
        let running = "another collection of this box is running".to_owned();
        flock(&book, exclusive).map_err(busy(running))?;
        let book = LockedFile::new(book);
        let what = format!("another collection into {} is running", into.display());
        flock(&into_file, exclusive).map_err(busy(what))?;
        Ok(Self { _box: book, _into: LockedFile::new(into_file) })
    }
}

/// Makes all files settled in this directory durable.
///
/// # Errors
/// Returns a system error.
pub fn sync(into: &Path) -> io::Result<()> {
    Ok(rustix::fs::syncfs(File::open(into)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_gets_its_name_when_it_is_complete() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        copy(&from, &to).unwrap_err();
        fs::write(&from, b"data").unwrap();
        // The rest of an interrupted copy.
        fs::write(dir.path().join("to.part"), b"da and more").unwrap();
        copy(&from, &to).unwrap();
        assert_eq!(fs::read(&to).unwrap(), b"data");
        assert!(!dir.path().join("to.part").exists());
    }

    #[test]
    fn one_collection_runs_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let files =
            |name: &str| BoxFiles::new(dir.path(), &name.parse().unwrap(), None).create().unwrap();
        let (a, b, into, other) =
            (files("a"), files("b"), dir.path().join("into"), dir.path().join("other"));
        fs::create_dir(&into).unwrap();
        fs::create_dir(&other).unwrap();
        let alone = CollectionLock::take(&a, &into).unwrap();
        for (files, into, what) in [(&a, &other, "this box"), (&b, &into, "into")] {
            let busy = CollectionLock::take(files, into).unwrap_err();
            assert_eq!(busy.kind(), io::ErrorKind::WouldBlock);
            assert!(busy.to_string().contains(what), "{busy}");
        }
        drop(alone);
        CollectionLock::take(&a, &into).unwrap();
    }
}
