//! A cast's own directory in the inbox, with all state that outlives the process.
//!
//! `.thalweg-cast-ID` in the inbox contains the job's record, the offer, the pass, the manifest, the layout, the
//! digests of symbols, the journal of symbols on disk, the fingerprint of the delivered files, and the last list of
//! parents. The file or directory being received is in `made`; when complete it is renamed into the inbox.

use super::job::ReceptionRecord;
use crate::{
    Inbox,
    disk::{InboxPolicy, ObjectLocation, OwnerPolicy, open_directory},
};
use std::{
    ffi::OsStr,
    fs::{self, File, OpenOptions},
    io,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    },
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};
use thalweg_base::durable;
use thalweg_net::Ed25519;
use thalweg_wire::{
    Manifest, Signable as _, Signed,
    cast::{CastId, Layout, MAX_LAYOUT, Offer},
};

const PREFIX: &str = ".thalweg-cast-";

/// The maximum size of a stored offer, pass, record or list of parents, in bytes.
const MAX_STATE_BYTES: usize = 64 << 10;

/// Attempts to remove a directory, into which pending writes may still add files.
const TRIES: u32 = 20;

/// The pause between attempts.
const PAUSE: Duration = Duration::from_millis(50);

/// Where a cast's state is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CastDirectory {
    pub inbox: PathBuf,
    pub id: CastId,
    /// What the source may set in the inbox.
    pub policy: InboxPolicy,
}

/// The digests that prove an object, and the layout of its files. Each may take more than a hundred MiB.
pub type ObjectDescription = (Arc<Manifest>, Arc<Layout>);

/// The stored state of a cast.
#[derive(Debug)]
pub struct StoredCast {
    pub offer: Signed<Offer>,
    /// The pass that authorizes this node at its parents.
    pub pass: Vec<u8>,
    /// The last list of parents, encoded.
    pub parents: Option<Vec<u8>>,
    /// Manifest and layout, if they are known.
    pub described: Option<ObjectDescription>,
    /// The object has its final name.
    pub is_done: bool,
    /// The job's record, if it is readable.
    pub record: Option<ReceptionRecord>,
}

impl CastDirectory {
    /// The home of a cast in this inbox.
    pub fn new(inbox: &Inbox, id: CastId) -> Self {
        let owners = if inbox.owners { OwnerPolicy::Apply } else { OwnerPolicy::Ignore };
        let links_within = (!inbox.links).then(|| plain_path(&inbox.path));
        let policy = InboxPolicy { owners, links_within };
        Self { inbox: inbox.path.clone(), id, policy }
    }

    /// All casts in an inbox; none if it cannot be listed.
    pub fn list(inbox: &Inbox) -> Vec<Self> {
        let entries = fs::read_dir(&inbox.path).into_iter().flatten().flatten();
        let id =
            |entry: fs::DirEntry| entry.file_name().to_str()?.strip_prefix(PREFIX)?.parse().ok();
        entries.filter_map(id).map(|id| Self::new(inbox, id)).collect()
    }

    /// The cast's directory.
    pub fn path(&self) -> PathBuf {
        self.inbox.join(format!("{PREFIX}{}", self.id))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// The journal of symbols on disk.
    pub fn journal(&self) -> PathBuf {
        self.file("have")
    }

    /// Creates the directory, accessible to its owner only, and stores offer and pass.
    ///
    /// # Errors
    /// I/O errors.
    pub fn begin(&self, offer: &Signed<Offer>, pass: &[u8]) -> io::Result<()> {
        for path in [self.path(), self.file("made")] {
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
                _ => {}
            }
        }
        durable::replace(&self.file("pass"), pass)?;
        durable::replace(&self.file("offer"), &offer.encode())
    }

    /// Stores manifest and layout.
    ///
    /// # Errors
    /// I/O errors.
    pub fn describe(&self, manifest: &Manifest, layout: &Layout) -> io::Result<()> {
        let mut bytes = Vec::new();
        manifest.encode(&mut bytes);
        durable::replace(&self.file("manifest"), &bytes)?;
        durable::replace(&self.file("layout"), &layout.encode())
    }

    /// Stores the list of parents.
    ///
    /// # Errors
    /// I/O errors.
    pub fn keep_parents(&self, encoded: &[u8]) -> io::Result<()> {
        durable::replace(&self.file("parents"), encoded)
    }

    /// Stores the job's record.
    ///
    /// # Errors
    /// I/O errors.
    pub fn keep_record(&self, record: &ReceptionRecord) -> io::Result<()> {
        durable::replace(&self.file("job"), &record.encode())
    }

    /// Whether files have been created in `made`.
    pub fn is_begun(&self, name: &[u8]) -> bool {
        self.file("made").join(OsStr::from_bytes(name)).symlink_metadata().is_ok()
    }

    /// Removes the received directory after its files were moved into an existing copy.
    ///
    /// # Errors
    /// I/O errors.
    pub fn remove_made(&self, name: &[u8]) -> io::Result<()> {
        fs::remove_dir_all(self.file("made").join(OsStr::from_bytes(name)))
    }

    /// Records that the object is complete and is renamed next.
    ///
    /// # Errors
    /// I/O errors.
    pub fn mark_landing(&self) -> io::Result<()> {
        durable::replace(&self.file("landing"), b"")
    }

    /// Whether the object was renamed to its final name, even if the process was killed before it recorded that: it was
    /// complete, is no longer in `made`, and the name exists. Without the `landing` mark, the name belongs to something
    /// else.
    fn has_landed(&self, name: &[u8]) -> bool {
        let is_there = self.inbox.join(OsStr::from_bytes(name)).symlink_metadata().is_ok();
        self.file("landing").exists() && !self.is_begun(name) && is_there
    }

    /// Records that the object has its name, and its directories their modes.
    ///
    /// # Errors
    /// I/O errors.
    pub fn mark_done(&self) -> io::Result<()> {
        durable::replace(&self.file("done"), b"")
    }

    /// Whether [`Self::mark_done`] was called.
    pub fn is_marked_done(&self) -> bool {
        self.file("done").exists()
    }

    /// Stores the fingerprint of the delivered files, which were read and are correct.
    ///
    /// # Errors
    /// I/O errors.
    pub fn keep_proof(&self, files: &[u8; 32]) -> io::Result<()> {
        durable::replace(&self.file("proof"), files)
    }

    /// The stored fingerprint, if there is a valid one.
    pub fn proof(&self) -> Option<[u8; 32]> {
        let proof = durable::read(&self.file("proof"), 32).ok()??;
        proof.try_into().ok()
    }

    /// Removes the marks: the object lost its name and is received again.
    ///
    /// # Errors
    /// I/O errors.
    pub fn unmark(&self) -> io::Result<()> {
        for name in ["proof", "done", "landing"] {
            match fs::remove_file(self.file(name)) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
        }
        Ok(())
    }

    /// Reads the stored state; `None` if it does not allow the cast to continue.
    ///
    /// # Errors
    /// I/O errors.
    pub fn load(&self) -> io::Result<Option<StoredCast>> {
        let read = |name, most| durable::read(&self.file(name), most);
        let Some(offer) = read("offer", MAX_STATE_BYTES)? else { return Ok(None) };
        let Ok(offer) = Signed::<Offer>::open(&offer, &Ed25519) else { return Ok(None) };
        let its = offer.value().id(&offer.signer());
        let Some(pass) = read("pass", MAX_STATE_BYTES)?.filter(|_| its == self.id) else {
            return Ok(None);
        };
        let manifest = read("manifest", Manifest::MAX_BYTES)?;
        let layout = read("layout", MAX_LAYOUT)?;
        let described = manifest.zip(layout).and_then(|(manifest, layout)| {
            let manifest = Manifest::decode(&manifest).ok()?;
            let is_its = manifest.object() == offer.value().object
                && *blake3::hash(&layout).as_bytes() == offer.value().layout;
            let layout = Layout::decode(&layout, offer.value().length).ok()?;
            is_its.then(|| (Arc::new(manifest), Arc::new(layout)))
        });
        let name = offer.value().name.as_bytes();
        let is_done = self.is_marked_done() || self.has_landed(name);
        let record =
            read("job", MAX_STATE_BYTES)?.and_then(|record| ReceptionRecord::decode(&record));
        let parents = read("parents", MAX_STATE_BYTES)?;
        Ok(Some(StoredCast { offer, pass, parents, described, is_done, record }))
    }

    /// Whether the offer is missing: a process was killed while it created or removed the directory.
    pub fn is_unborn(&self) -> bool {
        !self.file("offer").exists()
    }

    /// Opens the file with the digests of symbols.
    ///
    /// # Errors
    /// I/O errors.
    pub fn pages(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        options.open(self.file("pages"))
    }

    /// The place of the object while it is received.
    ///
    /// # Errors
    /// I/O errors.
    pub fn unfinished_location(&self, name: &[u8]) -> io::Result<ObjectLocation> {
        let directory = Arc::new(open_directory(&self.file("made"))?);
        Ok(ObjectLocation { directory, name: name.to_vec() })
    }

    /// The place of the complete object.
    ///
    /// # Errors
    /// I/O errors.
    pub fn final_location(&self, name: &[u8]) -> io::Result<ObjectLocation> {
        let directory = Arc::new(open_directory(&self.inbox)?);
        Ok(ObjectLocation { directory, name: name.to_vec() })
    }

    /// Removes everything but a complete object in the inbox. If the process is killed meanwhile, the rest is not a
    /// valid cast.
    ///
    /// # Errors
    /// I/O errors.
    pub fn remove(&self) -> io::Result<()> {
        // Removed first, so that nothing claims data that is partly removed.
        for path in [self.file("offer"), self.journal()] {
            match fs::remove_file(path) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                done => done?,
            }
        }
        let mut is_allowed = false;
        for _ in 0..TRIES {
            match fs::remove_dir_all(self.path()) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::DirectoryNotEmpty => thread::sleep(PAUSE),
                Err(e) if e.kind() == io::ErrorKind::PermissionDenied && !is_allowed => {
                    allow(&self.path());
                    is_allowed = true;
                }
                done => return done,
            }
        }
        Err(io::ErrorKind::DirectoryNotEmpty.into())
    }
}

/// A directory's path without a final `/`; empty for the root.
fn plain_path(directory: &Path) -> Vec<u8> {
    let path: PathBuf = directory.components().collect();
    let bytes = path.as_os_str().as_bytes();
    bytes.strip_suffix(b"/").unwrap_or(bytes).to_vec()
}

/// Makes a directory and all directories below writable for their owner, without following links: casts may contain
/// directories that nobody may write. Failures show when the directory is removed.
fn allow(directory: &Path) {
    let mut rest = vec![directory.to_owned()];
    while let Some(path) = rest.pop() {
        _ = fs::set_permissions(&path, fs::Permissions::from_mode(0o700));
        let entries = fs::read_dir(&path).into_iter().flatten().flatten();
        let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        rest.extend(directories.map(|entry| entry.path()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_net::PrivateKey;
    use thalweg_units::WallTime;
    use thalweg_wire::{Signer as _, cast::Shape, mesh::Name, object::FilePath};

    fn begun(inbox: &Path) -> (CastDirectory, Signed<Offer>) {
        let key = PrivateKey::from_seed(&[1; 32]);
        let manifest = Manifest::of_digests(0, Vec::new()).unwrap();
        let offer = Offer {
            name: FilePath::new(b"image".to_vec()).unwrap(),
            object: manifest.object(),
            length: 0,
            layout: [0; 32],
            layout_bytes: 0,
            shape: Shape { symbol_bytes: 1 << 14, block_symbols: 512, repair_symbols: 8 },
            open: false,
            created: WallTime::from_unix_nanos(5),
            expiry: WallTime::from_unix_nanos(6),
        };
        let home = CastDirectory::new(&inbox_at(inbox), offer.id(&key.id()));
        let offer = Signed::sign(offer, &key);
        home.begin(&offer, b"pass").unwrap();
        (home, offer)
    }

    fn inbox_at(path: &Path) -> Inbox {
        Inbox { path: path.to_owned(), ..Inbox::default() }
    }

    #[test]
    fn a_job_is_stored_until_the_home_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let (home, offer) = begun(dir.path());
        let from: Name = "lab".parse().unwrap();
        let record = ReceptionRecord::begin(home.id, &from, offer.value(), &home.inbox);
        home.keep_record(&record).unwrap();
        let found = CastDirectory::list(&inbox_at(dir.path()));
        assert_eq!(found, std::slice::from_ref(&home));
        let kept = home.load().unwrap().unwrap();
        assert_eq!((kept.record.as_ref(), kept.is_done), (Some(&record), false));
        assert_eq!(record.job.source, "lab:image");
        assert_eq!(record.job.id.to_string(), home.id.to_string());
        home.remove().unwrap();
        home.remove().unwrap();
        assert!(CastDirectory::list(&inbox_at(dir.path())).is_empty());
    }

    #[test]
    fn a_crash_after_the_rename_counts_as_done() {
        let dir = tempfile::tempdir().unwrap();
        let (home, _) = begun(dir.path());
        let is_done = || home.load().unwrap().unwrap().is_done;
        let made = home.path().join("made/image");
        fs::write(&made, "whole").unwrap();
        home.mark_landing().unwrap();
        assert!(!is_done());
        fs::rename(&made, dir.path().join("image")).unwrap();
        assert!(is_done());
        fs::remove_file(home.path().join("landing")).unwrap();
        assert!(!is_done(), "another's");
    }

    #[test]
    fn a_directory_without_an_offer_is_not_a_cast() {
        let dir = tempfile::tempdir().unwrap();
        let (home, _) = begun(dir.path());
        assert!(!home.is_unborn());
        fs::remove_file(home.path().join("offer")).unwrap();
        assert!(home.is_unborn() && home.load().unwrap().is_none());
    }
}
