//! A cast's own directory, beside its final name: all that outlives the process.
//!
//! `.thalweg-cast-ID` in the inbox holds the offer, the pass, the manifest, the layout, the digests
//! of the symbols, which symbols are on the disk, the last word on parents; and in `made` the
//! file or directory in the making, which is renamed into the inbox when it is whole.

use crate::{
    cast::disk::{Place, open_directory},
    mesh::durable,
};
use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::Arc,
};
use thalweg_net::Ed25519;
use thalweg_wire::{
    Manifest, Signable as _, Signed,
    cast::{CastId, Layout, MAX_LAYOUT, Offer},
};

const PREFIX: &str = ".thalweg-cast-";

/// The longest offer, pass or word on parents that is read back.
const MOST: usize = 64 << 10;

/// Where a cast is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    /// The inbox.
    pub inbox: PathBuf,
    /// The cast.
    pub id: CastId,
}

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
    pub described: Option<(Manifest, Layout)>,
    /// It had got its name.
    pub is_done: bool,
}

impl Home {
    /// In this inbox.
    pub fn of(inbox: &Path, id: CastId) -> Self {
        Self { inbox: inbox.to_owned(), id }
    }

    /// All in this inbox; what cannot be listed is none.
    pub fn found(inbox: &Path) -> Vec<Self> {
        let entries = fs::read_dir(inbox).into_iter().flatten().flatten();
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
    /// The system's.
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
    /// The system's.
    pub fn describe(&self, manifest: &Manifest, layout: &Layout) -> io::Result<()> {
        let mut bytes = Vec::new();
        manifest.encode(&mut bytes);
        durable::replace(&self.file("manifest"), &bytes)?;
        durable::replace(&self.file("layout"), &layout.encode())
    }

    /// Keeps the last word on parents.
    ///
    /// # Errors
    /// The system's.
    pub fn keep_parents(&self, word: &[u8]) -> io::Result<()> {
        durable::replace(&self.file("parents"), word)
    }

    /// It has its name.
    ///
    /// # Errors
    /// The system's.
    pub fn mark_done(&self) -> io::Result<()> {
        durable::replace(&self.file("done"), b"")
    }

    /// What there is of it; `None` if that is no cast that can be gone on with.
    ///
    /// # Errors
    /// The system's.
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
            is_its.then_some((manifest, layout))
        });
        let (parents, is_done) = (read("parents", MOST)?, self.file("done").exists());
        Ok(Some(Kept { offer, pass, parents, described, is_done }))
    }

    /// The file with the symbols' digests.
    ///
    /// # Errors
    /// The system's.
    pub fn pages(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        options.open(self.file("pages"))
    }

    /// Where it is made.
    ///
    /// # Errors
    /// The system's.
    pub fn made(&self, name: &[u8]) -> io::Result<Place> {
        let directory = Arc::new(open_directory(&self.file("made"))?);
        Ok(Place { directory, name: name.to_vec() })
    }

    /// Where it is when it is whole.
    ///
    /// # Errors
    /// The system's.
    pub fn landed(&self, name: &[u8]) -> io::Result<Place> {
        let directory = Arc::new(open_directory(&self.inbox)?);
        Ok(Place { directory, name: name.to_vec() })
    }

    /// Throws all of it away but what has its final name.
    ///
    /// # Errors
    /// The system's.
    pub fn remove(&self) -> io::Result<()> {
        match fs::remove_dir_all(self.path()) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        }
    }
}
