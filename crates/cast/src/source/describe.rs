//! Computes an object's name and the digests of its chunks and symbols in one pass.
//!
//! The result is kept in the state directory as long as the files stay unchanged, so that a restarted source need not
//! read them again.

use super::survey::Survey;
use crate::{
    disk::ObjectFiles,
    store::{KnownObject, Pages, Store, read_page},
};
use std::{
    fs::{self, File, FileTimes, OpenOptions},
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};
use thalweg_base::durable;
use thalweg_fountain::{Geometry, HaveSet, digest::ObjectHasher};
use thalweg_units::WallTime;
use thalweg_wire::{
    Manifest, ObjectId, Signable as _, Signer,
    cast::{Offer, Shape},
    object::FilePath,
};
use thiserror::Error;

/// Bytes read at a time.
const PIECE: usize = 1 << 20;

/// Why an object cannot be described.
#[derive(Debug, Error)]
pub enum DescribeError {
    /// The object cannot be read, or has changed meanwhile.
    #[error("{0}")]
    Read(io::Error),
    /// Some files cannot be read, or changed while they were read: entries of the layout, at least one.
    #[error("{}", .0.first().map_or_else(String::new, |(_, why)| why.to_string()))]
    Files(Vec<(u32, io::Error)>),
    /// The result cannot be stored.
    #[error("{}: {source}", path.display())]
    Keep { path: PathBuf, source: io::Error },
    /// The object is too long, or has too many files.
    #[error("{0}")]
    Large(String),
}

impl DescribeError {
    /// Replaces the object's name at the beginning of the message by the path that the user gave.
    pub fn below(self, name: &[u8], given: &Path) -> Self {
        let why = match self {
            Self::Read(why) => why,
            Self::Files(mut failed) if !failed.is_empty() => failed.swap_remove(0).1,
            other => return other,
        };
        let text = why.to_string();
        let rest = text.strip_prefix(&name.escape_ascii().to_string());
        let rest = rest.filter(|rest| rest.starts_with([':', '/']));
        match rest {
            Some(rest) => {
                Self::Read(io::Error::new(why.kind(), format!("{}{rest}", given.display())))
            }
            None => Self::Read(why),
        }
    }
}

/// Properties of the offer besides the object.
#[derive(Clone, Debug)]
pub struct OfferTerms {
    /// The object's name in the inboxes.
    pub name: FilePath,
    /// Whether legs may be open.
    pub open: bool,
    /// The offer's creation and expiry.
    pub valid: (WallTime, WallTime),
}

/// Describes the object. Calls `passed` after each MiB with the number of bytes read so far.
///
/// # Errors
/// [`DescribeError`]. With [`DescribeError::Files`] the rest of the object can be read.
pub fn describe(
    survey: &Survey,
    geometry: Geometry,
    terms: OfferTerms,
    signer: &impl Signer,
    kept_in: &Path,
    passed: impl Fn(u64),
) -> Result<Arc<Store>, DescribeError> {
    let files = ObjectFiles::present(Arc::clone(&survey.layout), survey.place.clone());
    let kept = DigestCache::new(kept_in, survey, &geometry);
    let (manifest, pages) = match kept.read(survey, &geometry) {
        Some(found) => found,
        None => hash(&files, &geometry, &kept, survey, passed)?,
    };
    let pages = Pages::new(pages);
    let layout = survey.layout.encode();
    let too_long = |_| DescribeError::Large("the list of files is too long to be cast".to_owned());
    let offer = Offer {
        name: terms.name,
        object: manifest.object(),
        length: survey.length,
        layout: *blake3::hash(&layout).as_bytes(),
        layout_bytes: u32::try_from(layout.len()).map_err(too_long)?,
        shape: Shape {
            symbol_bytes: geometry.symbol_bytes(),
            block_symbols: geometry.block_symbols(),
            repair_symbols: geometry.repair_symbols(),
        },
        open: terms.open,
        created: terms.valid.0,
        expiry: terms.valid.1,
    };
    let id = offer.id(&signer.id());
    let known = KnownObject { id, offer, geometry, manifest: Arc::new(manifest) };
    Ok(Store::new(known, files, pages, HaveSet::all(&geometry)))
}

fn hash(
    files: &ObjectFiles,
    geometry: &Geometry,
    kept: &DigestCache,
    survey: &Survey,
    passed: impl Fn(u64),
) -> Result<(Manifest, File), DescribeError> {
    let file = kept.begin().map_err(|e| kept.failed(e))?;
    let pages = Pages::new(file.try_clone().map_err(|e| kept.failed(e))?);
    let mut hasher = ObjectHasher::new(*geometry);
    let mut written = Ok(());
    let mut keep = |page| {
        if written.is_ok() {
            written = pages.write(geometry, &page);
        }
    };
    let mut buffer = vec![0; PIECE];
    let mut at = 0;
    while at < survey.length {
        let piece = &mut buffer[..(survey.length - at).min(PIECE as u64) as usize];
        if let Err(why) = files.read(at, piece) {
            let failed = files.unreadable(at);
            return Err(match failed.is_empty() {
                // All files could be read this time, so it is unknown which one failed before.
                true => DescribeError::Read(why),
                false => DescribeError::Files(failed),
            });
        }
        hasher.update(piece, &mut keep);
        at += piece.len() as u64;
        passed(at);
    }
    let summary = hasher.finish(&mut keep);
    written.map_err(|e| kept.failed(e))?;
    let manifest = Manifest::of_digests(survey.length, summary.chunks);
    let manifest = manifest.map_err(|e| DescribeError::Large(e.to_string()))?;
    if manifest.object() != ObjectId::from_bytes(summary.object) {
        // Cannot happen: both hashes are computed from the same digests.
        return Err(DescribeError::Read(io::Error::other(
            "internal error: the digests do not match the hash",
        )));
    }
    // `ID.known` is written only after the pages are on disk, so that it never refers to pages that a power loss
    // destroyed.
    file.sync_data().map_err(|e| kept.failed(e))?;
    kept.end(survey, &manifest).map_err(|e| kept.failed(e))?;
    Ok((manifest, file))
}

/// The stored result of a pass: `ID.pages` and `ID.known` in a directory.
struct DigestCache {
    directory: PathBuf,
    name: String,
}

impl DigestCache {
    fn new(directory: &Path, survey: &Survey, geometry: &Geometry) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&survey.snapshot);
        for number in [geometry.symbol_bytes(), geometry.block_symbols()] {
            hasher.update(&number.to_be_bytes());
        }
        let name = hasher.finalize().to_hex()[..32].to_owned();
        Self { directory: directory.to_owned(), name }
    }

    fn failed(&self, source: io::Error) -> DescribeError {
        DescribeError::Keep { path: self.directory.clone(), source }
    }

    fn path(&self, ending: &str) -> PathBuf {
        self.directory.join(format!("{}.{ending}", self.name))
    }

    fn unfinished(&self) -> PathBuf {
        self.path(&format!("new-{}", std::process::id()))
    }

    fn begin(&self) -> io::Result<File> {
        fs::create_dir_all(&self.directory)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true).open(self.unfinished())
    }

    fn end(&self, survey: &Survey, manifest: &Manifest) -> io::Result<()> {
        fs::rename(self.unfinished(), self.path("pages"))?;
        let mut known = survey.snapshot.to_vec();
        manifest.encode(&mut known);
        durable::replace(&self.path("known"), &known)
    }

    fn read(&self, survey: &Survey, geometry: &Geometry) -> Option<(Manifest, File)> {
        let known = durable::read(&self.path("known"), 32 + Manifest::MAX_BYTES).ok()??;
        let (snapshot, manifest) = known.split_first_chunk::<32>()?;
        let manifest = Manifest::decode(manifest).ok()?;
        let pages = OpenOptions::new().read(true).write(true).open(self.path("pages")).ok()?;
        let is_same = *snapshot == survey.snapshot && manifest.length() == survey.length;
        if !is_same || !are_whole(&pages, geometry, &manifest) {
            return None;
        }
        self.touch();
        Some((manifest, pages))
    }

    /// Updates the files' times, so that `clear` does not remove them as unused.
    fn touch(&self) {
        let now = FileTimes::new().set_modified(SystemTime::now());
        for ending in ["known", "pages"] {
            // On failure the files may be removed, and the object is read once more.
            _ = OpenOptions::new().write(true).open(self.path(ending)).map(|f| f.set_times(now));
        }
    }
}

/// Whether all digests of symbols are present and match the manifest: after a power loss a file may have its length but
/// not its content. The digests are 1/512 of the object's size with symbols of 16 KiB.
fn are_whole(pages: &File, geometry: &Geometry, manifest: &Manifest) -> bool {
    let is_right = |block| matches!(read_page(pages, geometry, manifest, block), Ok(Some(_)));
    (0..geometry.blocks()).all(is_right)
}
