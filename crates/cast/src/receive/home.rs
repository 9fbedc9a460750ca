//! A cast's own directory, beside its final name: all that outlives the process.
//!
//! `.thalweg-cast-ID` in the inbox holds the job's record, the offer, the pass, the manifest, the
//! layout, the digests of the symbols, which symbols are on the disk, what shows whether the delivered
//! files were touched, the last word on parents; and in
//! `made` the file or directory in the making, which is renamed into the inbox when it is whole.

use super::job::Record;
use crate::{
    Inbox,
    disk::{OwnerPolicy, Place, Policy, open_directory},
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

/// The longest offer, pass or word on parents that is read back.
const MOST: usize = 64 << 10;

/// While a directory is removed, what was on its way to the disk may still be written into it.
const TRIES: u32 = 20;

/// Between the tries.
const BETWEEN: Duration = Duration::from_millis(50);

/// Where a cast is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    /// The inbox.
    pub inbox: PathBuf,
    /// The cast.
    pub id: CastId,
    /// What its source may set.
    pub policy: Policy,
}

/// What proves an object, and where its bytes are: each may take more than a hundred MiB.
pub type Described = (Arc<Manifest>, Arc<Layout>);

/// What was found of a cast from before.
#[derive(Debug)]
pub struct Kept {
    /// Whose, and what.
    pub offer: Signed<Offer>,
    /// With what this node shows itself to others.
    pub pass: Vec<u8>,
    /// The last word on parents, as it was encoded.
    pub parents: Option<Vec<u8>>,
    /// What proves the object, if it had come.
    pub described: Option<Described>,
    /// It had got its name.
    pub is_done: bool,
    /// The job's record, if it is whole.
    pub record: Option<Record>,
}

impl Home {
    /// In this inbox.
    pub fn of(inbox: &Inbox, id: CastId) -> Self {
        let owners = if inbox.owners { OwnerPolicy::Apply } else { OwnerPolicy::Ignore };
        let links_within = (!inbox.links).then(|| plain_path(&inbox.path));
        let policy = Policy { owners, links_within };
        Self { inbox: inbox.path.clone(), id, policy }
    }

    /// All in this inbox; what cannot be listed is none.
    pub fn found(inbox: &Inbox) -> Vec<Self> {
        let entries = fs::read_dir(&inbox.path).into_iter().flatten().flatten();
        let id =
            |entry: fs::DirEntry| entry.file_name().to_str()?.strip_prefix(PREFIX)?.parse().ok();
        entries.filter_map(id).map(|id| Self::of(inbox, id)).collect()
    }

    /// Its directory.
    pub fn path(&self) -> PathBuf {
        self.inbox.join(format!("{PREFIX}{}", self.id))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// Which symbols are on the disk.
    pub fn journal(&self) -> PathBuf {
        self.file("have")
    }

    /// Makes the directory, for its owner alone, and keeps the offer.
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

    /// Keeps what proves the object.
    ///
    /// # Errors
    /// I/O errors.
    pub fn describe(&self, manifest: &Manifest, layout: &Layout) -> io::Result<()> {
        let mut bytes = Vec::new();
        manifest.encode(&mut bytes);
        durable::replace(&self.file("manifest"), &bytes)?;
        durable::replace(&self.file("layout"), &layout.encode())
    }

    /// Keeps the last word on parents.
    ///
    /// # Errors
    /// I/O errors.
    pub fn keep_parents(&self, word: &[u8]) -> io::Result<()> {
        durable::replace(&self.file("parents"), word)
    }

    /// Keeps the job's record.
    ///
    /// # Errors
    /// I/O errors.
    pub fn keep_record(&self, record: &Record) -> io::Result<()> {
        durable::replace(&self.file("job"), &record.encode())
    }

    /// Whether anything of it is made.
    pub fn is_begun(&self, name: &[u8]) -> bool {
        self.file("made").join(OsStr::from_bytes(name)).symlink_metadata().is_ok()
    }

    /// Removes the directory in the making: an existing copy was completed with it.
    ///
    /// # Errors
    /// I/O errors.
    pub fn remove_made(&self, name: &[u8]) -> io::Result<()> {
        fs::remove_dir_all(self.file("made").join(OsStr::from_bytes(name)))
    }

    /// It is whole, and gets its name next.
    ///
    /// # Errors
    /// I/O errors.
    pub fn mark_landing(&self) -> io::Result<()> {
        durable::replace(&self.file("landing"), b"")
    }

    /// It was whole, and is not in the making any more: it has its name, also if the process was
    /// killed before it could say so. What has the name otherwise is another's.
    fn has_landed(&self, name: &[u8]) -> bool {
        let is_there = self.inbox.join(OsStr::from_bytes(name)).symlink_metadata().is_ok();
        self.file("landing").exists() && !self.is_begun(name) && is_there
    }

    /// It has its name, and its directories their modes.
    ///
    /// # Errors
    /// I/O errors.
    pub fn mark_done(&self) -> io::Result<()> {
        durable::replace(&self.file("done"), b"")
    }

    /// Whether that was noted.
    pub fn is_marked_done(&self) -> bool {
        self.file("done").exists()
    }

    /// All of it was read and is right: what shows whether it was touched since.
    ///
    /// # Errors
    /// I/O errors.
    pub fn keep_proof(&self, files: &[u8; 32]) -> io::Result<()> {
        durable::replace(&self.file("proof"), files)
    }

    /// What was kept so.
    pub fn proof(&self) -> Option<[u8; 32]> {
        let proof = durable::read(&self.file("proof"), 32).ok()??;
        proof.try_into().ok()
    }

    /// It has no name any more, and is made once more.
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

    /// What there is of it; `None` if that is no cast that can be gone on with.
    ///
    /// # Errors
    /// I/O errors.
    pub fn kept(&self) -> io::Result<Option<Kept>> {
        let read = |name, most| durable::read(&self.file(name), most);
        let Some(offer) = read("offer", MOST)? else { return Ok(None) };
        let Ok(offer) = Signed::<Offer>::open(&offer, &Ed25519) else { return Ok(None) };
        let its = offer.value().id(&offer.signer());
        let Some(pass) = read("pass", MOST)?.filter(|_| its == self.id) else { return Ok(None) };
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
        let record = read("job", MOST)?.and_then(|record| Record::decode(&record));
        let parents = read("parents", MOST)?;
        Ok(Some(Kept { offer, pass, parents, described, is_done, record }))
    }

    /// Whether there is no offer: a process was killed as it made the directory, or removed it.
    pub fn is_unborn(&self) -> bool {
        !self.file("offer").exists()
    }

    /// The file with the symbols' digests.
    ///
    /// # Errors
    /// I/O errors.
    pub fn pages(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        options.open(self.file("pages"))
    }

    /// Where it is made.
    ///
    /// # Errors
    /// I/O errors.
    pub fn made(&self, name: &[u8]) -> io::Result<Place> {
        let directory = Arc::new(open_directory(&self.file("made"))?);
        Ok(Place { directory, name: name.to_vec() })
    }

    /// Where it is when it is whole.
    ///
    /// # Errors
    /// I/O errors.
    pub fn landed(&self, name: &[u8]) -> io::Result<Place> {
        let directory = Arc::new(open_directory(&self.inbox)?);
        Ok(Place { directory, name: name.to_vec() })
    }

    /// Throws all of it away but what has its final name. A process that is killed meanwhile leaves
    /// a cast that is not gone on with.
    ///
    /// # Errors
    /// I/O errors.
    pub fn remove(&self) -> io::Result<()> {
        // Of what is removed in part no journal tells that it is here.
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
                Err(e) if e.kind() == io::ErrorKind::DirectoryNotEmpty => thread::sleep(BETWEEN),
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

/// A directory's path without a last `/`; the root's is empty.
fn plain_path(directory: &Path) -> Vec<u8> {
    let path: PathBuf = directory.components().collect();
    let bytes = path.as_os_str().as_bytes();
    bytes.strip_suffix(b"/").unwrap_or(bytes).to_vec()
}

/// Lets the owner of a directory write it and all directories below, through no link: a tree may be cast
/// whose directories nobody may write. What that fails for is found when it is removed.
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

    fn begun(inbox: &Path) -> (Home, Signed<Offer>) {
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
        let home = Home::of(&inbox_at(inbox), offer.id(&key.id()));
        let offer = Signed::sign(offer, &key);
        home.begin(&offer, b"pass").unwrap();
        (home, offer)
    }

    fn inbox_at(path: &Path) -> Inbox {
        Inbox { path: path.to_owned(), ..Inbox::default() }
    }

    #[test]
    fn a_job_is_kept_until_all_is_thrown_away() {
        let dir = tempfile::tempdir().unwrap();
        let (home, offer) = begun(dir.path());
        let from: Name = "lab".parse().unwrap();
        let record = Record::begin(home.id, &from, offer.value(), &home.inbox);
        home.keep_record(&record).unwrap();
        let found = Home::found(&inbox_at(dir.path()));
        assert_eq!(found, std::slice::from_ref(&home));
        let kept = home.kept().unwrap().unwrap();
        assert_eq!((kept.record.as_ref(), kept.is_done), (Some(&record), false));
        assert_eq!(record.job.source, "lab:image");
        assert_eq!(record.job.id.to_string(), home.id.to_string());
        home.remove().unwrap();
        home.remove().unwrap();
        assert!(Home::found(&inbox_at(dir.path())).is_empty());
    }

    #[test]
    fn who_is_killed_between_the_name_and_the_note_has_it() {
        let dir = tempfile::tempdir().unwrap();
        let (home, _) = begun(dir.path());
        let is_done = || home.kept().unwrap().unwrap().is_done;
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
    fn a_directory_that_never_got_its_offer_is_no_cast() {
        let dir = tempfile::tempdir().unwrap();
        let (home, _) = begun(dir.path());
        assert!(!home.is_unborn());
        fs::remove_file(home.path().join("offer")).unwrap();
        assert!(home.is_unborn() && home.kept().unwrap().is_none());
    }
}
