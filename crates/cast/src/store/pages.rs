//! The digests of all symbols, in a file: 32 bytes per symbol.

use super::KnownObject;
use parking_lot::Mutex;
use std::{collections::VecDeque, fs::File, io, os::unix::fs::FileExt as _, sync::Arc};
use thalweg_fountain::{
    Geometry,
    digest::{Digest, PageError, SourcePage},
};
use thalweg_wire::Manifest;

/// Pages cached in memory, for blocks that several children request at a time. A page has 16 KiB by default, at most 1
/// MiB.
const CACHED: usize = 16;

/// The known pages of digests. The file's content alone proves nothing: each page is checked against the manifest when
/// it is read.
#[derive(Debug)]
pub struct Pages {
    file: File,
    cache: Mutex<VecDeque<Arc<SourcePage>>>,
}

impl Pages {
    /// Creates the set over a file, which may be empty.
    pub fn new(file: File) -> Self {
        Self { file, cache: Mutex::default() }
    }

    /// Writes a page that has been checked.
    ///
    /// # Errors
    /// I/O errors.
    pub fn write(&self, geometry: &Geometry, page: &SourcePage) -> io::Result<()> {
        self.file.write_all_at(page.digests.as_flattened(), place(geometry, page.block))
    }

    /// Checks a received page against the manifest, and keeps it if it is valid.
    ///
    /// # Errors
    /// I/O errors; the inner result says why the page is invalid.
    pub fn learn(
        &self,
        known: &KnownObject,
        page: SourcePage,
    ) -> io::Result<Result<(), PageError>> {
        if let Err(wrong) = known.check(&page) {
            return Ok(Err(wrong));
        }
        self.write(&known.geometry, &page)?;
        self.keep(Arc::new(page));
        Ok(Ok(()))
    }

    /// The page of a block, if it is known.
    ///
    /// # Errors
    /// I/O errors.
    pub fn get(&self, known: &KnownObject, block: u32) -> io::Result<Option<Arc<SourcePage>>> {
        if let Some(page) = self.cached(block) {
            return Ok(Some(page));
        }
        let Some(page) = read_page(&self.file, &known.geometry, &known.manifest, block)? else {
            return Ok(None);
        };
        let page = Arc::new(page);
        self.keep(Arc::clone(&page));
        Ok(Some(page))
    }

    /// Syncs the file's data to disk.
    ///
    /// # Errors
    /// I/O errors.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// The page of a block, if it is in memory.
    pub fn cached(&self, block: u32) -> Option<Arc<SourcePage>> {
        let mut cache = self.cache.lock();
        let at = cache.iter().position(|page| page.block == block)?;
        let page = cache.remove(at)?;
        cache.push_front(Arc::clone(&page));
        Some(page)
    }

    fn keep(&self, page: Arc<SourcePage>) {
        let mut cache = self.cache.lock();
        cache.retain(|known| known.block != page.block);
        cache.push_front(page);
        cache.truncate(CACHED);
    }
}

/// Reads the page of a block from a file; `None` if it is missing or invalid.
///
/// # Errors
/// I/O errors.
pub fn read_page(
    file: &File,
    geometry: &Geometry,
    manifest: &Manifest,
    block: u32,
) -> io::Result<Option<SourcePage>> {
    let symbols = geometry.source_symbols_of(block) as usize;
    let mut digests = vec![Digest::default(); symbols];
    match file.read_exact_at(digests.as_flattened_mut(), place(geometry, block)) {
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let page = SourcePage { block, digests };
    Ok(check(geometry, manifest, &page).is_ok().then_some(page))
}

fn check(geometry: &Geometry, manifest: &Manifest, page: &SourcePage) -> Result<(), PageError> {
    let chunks = geometry.chunks_of(page.block);
    let chunks = chunks.start as usize..chunks.end as usize;
    page.check(geometry, manifest.digests().get(chunks).unwrap_or_default())
}

fn place(geometry: &Geometry, block: u32) -> u64 {
    u64::from(block) * u64::from(geometry.block_symbols()) * 32
}

impl KnownObject {
    /// Checks a page against the manifest.
    ///
    /// # Errors
    /// Why the page is invalid.
    pub fn check(&self, page: &SourcePage) -> Result<(), PageError> {
        check(&self.geometry, &self.manifest, page)
    }
}
