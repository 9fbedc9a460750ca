//! Reads and writes an object's bytes; keeps a few files open at a time.

use super::{
    open::below,
    spans::{FilePart, Spans},
};
use parking_lot::Mutex;
use rustix::{
    fs::OFlags,
    io::{Errno, preadv},
};
use std::{
    collections::{BTreeSet, VecDeque},
    fs::File,
    io::{self, IoSliceMut, Read as _},
    ops::Range,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::fs::{FileExt as _, MetadataExt as _},
    },
    sync::Arc,
};
use thalweg_part::{StoredTimes, holes};
use thalweg_wire::{
    cast::{Layout, LayoutEntry, LayoutKind},
    object::FileTime,
};

/// The maximum number of files kept open. A cast of one large file needs one. In directories with more files, each
/// switch costs an `openat2`.
const MAX_OPEN: usize = 64;

/// If more files than this were written since the last sync, the whole file system is synced.
const MAX_SINGLE_SYNCS: usize = 16;

/// Bytes read at a time when files are checked for readability.
const PIECE: usize = 1 << 20;

/// The location of an object: an open directory, and the object's name in it.
#[derive(Clone, Debug)]
pub struct ObjectLocation {
    pub directory: Arc<OwnedFd>,
    /// The object's name in the directory: one path component.
    pub name: Vec<u8>,
}

impl ObjectLocation {
    /// The path of an entry below the directory.
    pub fn path(&self, below: &[u8]) -> Vec<u8> {
        path_in(&self.name, below)
    }
}

/// The path of an entry of an object with this name, below the directory that contains the object.
pub fn path_in(name: &[u8], below: &[u8]) -> Vec<u8> {
    match below {
        [] => name.to_vec(),
        below => [name, b"/", below].concat(),
    }
}

/// The files of an object, shared by all tasks that read and write it.
#[derive(Debug)]
pub struct ObjectFiles {
    layout: Arc<Layout>,
    spans: Spans,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    place: ObjectLocation,
    stage: Stage,
    open: VecDeque<(u32, Arc<File>)>,
    /// Entries written since the last sync.
    dirty: BTreeSet<u32>,
    /// How the file system rounds times.
    times: StoredTimes,
}

/// How the files relate to the layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// They are being written and do not match the layout yet.
    Making,
    /// They already existed and may match the layout. They are only read.
    Found,
    /// They match the layout, including modification times.
    Present,
}

impl ObjectFiles {
    /// Files that match the layout and must stay unchanged.
    pub fn present(layout: Arc<Layout>, place: ObjectLocation) -> Self {
        Self::new(layout, place, Stage::Present)
    }

    /// Files that are being written.
    pub fn in_making(layout: Arc<Layout>, place: ObjectLocation) -> Self {
        Self::new(layout, place, Stage::Making)
    }

    /// Existing files of the user, which may match the layout.
    pub fn unverified(layout: Arc<Layout>, place: ObjectLocation) -> Self {
        Self::new(layout, place, Stage::Found)
    }

    fn new(layout: Arc<Layout>, place: ObjectLocation, stage: Stage) -> Self {
        let (open, dirty, times) = (VecDeque::new(), BTreeSet::new(), StoredTimes::default());
        let inner = Inner { place, stage, open, dirty, times };
        Self { spans: Spans::new(&layout), layout, inner: Mutex::new(inner) }
    }

    /// The layout of the files.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// Marks the files as complete, at their final place.
    pub fn mark_present(&self, place: ObjectLocation) {
        let mut inner = self.inner.lock();
        inner.place = place;
        inner.stage = Stage::Present;
    }

    /// Reads these bytes of the object.
    ///
    /// # Errors
    /// I/O errors. If the files are complete, also an error if one does not match the layout any more.
    pub fn read(&self, from: u64, buffer: &mut [u8]) -> io::Result<()> {
        let mut filled = 0;
        for piece in self.spans.pieces(from..from + buffer.len() as u64) {
            let length = (piece.range.end - piece.range.start) as usize;
            self.read_piece(&piece, &mut buffer[filled..filled + length])?;
            filled += length;
        }
        if filled == buffer.len() { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    fn read_piece(&self, piece: &FilePart, buffer: &mut [u8]) -> io::Result<()> {
        let (file, stage) = self.file(piece.entry)?;
        let read = file.read_exact_at(buffer, piece.range.start);
        if stage == Stage::Present {
            self.check(piece.entry, &file)?;
        }
        read.map_err(|e| self.named(piece.entry, &e))
    }

    /// Reads all files whose bytes are at or after `from`. Returns those that cannot be read, with the errors.
    pub fn unreadable(&self, from: u64) -> Vec<(u32, io::Error)> {
        let mut failed: Vec<(u32, io::Error)> = Vec::new();
        let mut buffer = vec![0; PIECE];
        for whole in self.spans.pieces(from..u64::MAX) {
            let Range { start, end } = whole.range;
            let starts = (start..end).step_by(PIECE);
            let mut read = starts.map(|at| {
                let range = at..end.min(at + PIECE as u64);
                let length = (range.end - range.start) as usize;
                self.read_piece(&FilePart { entry: whole.entry, range }, &mut buffer[..length])
            });
            if let Some(why) = read.find_map(Result::err) {
                failed.push((whole.entry, why));
            }
        }
        failed
    }

    /// Reads consecutive bytes of the object into `places`, with one system call if they are in one file.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_into(&self, from: u64, places: &mut [&mut [u8]]) -> io::Result<()> {
        let length: usize = places.iter().map(|place| place.len()).sum();
        let first = self.spans.pieces(from..from + length as u64).next();
        let only = first.filter(|piece| piece.range.end - piece.range.start == length as u64);
        let Some(piece) = only else {
            let mut at = from;
            return places.iter_mut().try_for_each(|place| {
                at += place.len() as u64;
                self.read(at - place.len() as u64, place)
            });
        };
        let (file, stage) = self.file(piece.entry)?;
        let read = read_exact_into(&file, piece.range.start, places);
        if stage == Stage::Present {
            self.check(piece.entry, &file)?;
        }
        read.map_err(|e| self.named(piece.entry, &e))
    }

    /// Writes these bytes of the object.
    ///
    /// # Errors
    /// I/O errors.
    pub fn write(&self, from: u64, bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        for piece in self.spans.pieces(from..from + bytes.len() as u64) {
            let (part, later) = rest.split_at((piece.range.end - piece.range.start) as usize);
            let (file, _) = self.file(piece.entry)?;
            let written = match self.is_sparse(piece.entry) {
                true => holes::write(&file, piece.range.start, part),
                false => file.write_all_at(part, piece.range.start),
            };
            written.map_err(|e| self.named(piece.entry, &e))?;
            self.inner.lock().dirty.insert(piece.entry);
            rest = later;
        }
        Ok(())
    }

    /// Copies the readable files from another place. Files that cannot be read are skipped.
    ///
    /// # Errors
    /// I/O errors.
    pub fn copy_from(&self, place: &ObjectLocation) -> io::Result<()> {
        for (number, entry) in (0..).zip(&self.layout.entries) {
            let LayoutKind::File { length: length @ 1.. } = entry.kind else { continue };
            let path = place.path(entry.path.as_bytes());
            let opened = below(&place.directory, &path, OFlags::RDONLY | OFlags::NONBLOCK);
            let from = match opened {
                Err(Errno::NOENT | Errno::ACCESS) => continue,
                opened => opened.map_err(|e| self.named(number, &e.into()))?,
            };
            let (to, _) = self.file(number)?;
            let copied = io::copy(&mut File::from(from).take(length), &mut &*to);
            copied.map_err(|e| self.named(number, &e))?;
            self.inner.lock().dirty.insert(number);
        }
        Ok(())
    }

    /// Syncs everything that was written before this call to disk.
    ///
    /// # Errors
    /// I/O errors; then the files stay marked as not synced.
    pub fn sync(&self) -> io::Result<()> {
        let dirty = std::mem::take(&mut self.inner.lock().dirty);
        let synced = self.sync_these(&dirty);
        if synced.is_err() {
            self.inner.lock().dirty.extend(dirty);
        }
        synced
    }

    fn sync_these(&self, dirty: &BTreeSet<u32>) -> io::Result<()> {
        if dirty.len() > MAX_SINGLE_SYNCS {
            let directory = Arc::clone(&self.inner.lock().place.directory);
            return Ok(rustix::fs::syncfs(&*directory)?);
        }
        dirty.iter().try_for_each(|entry| self.file(*entry)?.0.sync_data())
    }

    fn file(&self, entry: u32) -> io::Result<(Arc<File>, Stage)> {
        let (place, stage) = {
            let mut inner = self.inner.lock();
            if let Some(at) = inner.open.iter().position(|(known, _)| *known == entry) {
                if at > 0 {
                    inner.open.swap(0, at);
                }
                return Ok((Arc::clone(&inner.open[0].1), inner.stage));
            }
            (inner.place.clone(), inner.stage)
        };
        let flags = if stage == Stage::Making { OFlags::RDWR } else { OFlags::RDONLY };
        let path = place.path(self.path_of(entry));
        let opened = below(&place.directory, &path, flags | OFlags::NONBLOCK);
        let file = Arc::new(File::from(opened.map_err(|e| self.named(entry, &e.into()))?));
        let mut inner = self.inner.lock();
        inner.open.truncate(MAX_OPEN - 1);
        inner.open.push_front((entry, Arc::clone(&file)));
        Ok((file, stage))
    }

    fn is_sparse(&self, entry: u32) -> bool {
        self.layout.entries.get(entry as usize).is_some_and(LayoutEntry::is_sparse)
    }

    fn path_of(&self, entry: u32) -> &[u8] {
        self.layout.entries.get(entry as usize).map_or(b"", |entry| entry.path.as_bytes())
    }

    /// Fails if a file does not match the layout: a change alters its modification time.
    fn check(&self, entry: u32, file: &File) -> io::Result<()> {
        let found = file.metadata()?;
        let Some(listed) = self.layout.entries.get(entry as usize) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let modified = FileTime::from_stat(found.mtime(), found.mtime_nsec());
        let mut inner = self.inner.lock();
        let Inner { place, times, .. } = &mut *inner;
        let is_same = listed.kind == (LayoutKind::File { length: found.size() })
            && times.are_same(place.directory.as_fd(), found.dev(), listed.modified, modified);
        drop(inner);
        if is_same {
            Ok(())
        } else {
            Err(self.named(entry, &io::Error::other("the file has changed")))
        }
    }

    fn named(&self, entry: u32, why: &io::Error) -> io::Error {
        let place = self.inner.lock().place.clone();
        let path = place.path(self.path_of(entry)).escape_ascii().to_string();
        io::Error::new(why.kind(), format!("{path}: {why}"))
    }
}

fn read_exact_into(file: &File, mut from: u64, places: &mut [&mut [u8]]) -> io::Result<()> {
    let mut places: Vec<_> = places.iter_mut().map(|place| IoSliceMut::new(place)).collect();
    let mut rest = places.as_mut_slice();
    while !rest.is_empty() {
        match preadv(file, rest, from) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => {
                from += n as u64;
                IoSliceMut::advance_slices(&mut rest, n);
            }
            Err(Errno::INTR) => {}
            Err(why) => return Err(why.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, path::Path};
    use thalweg_wire::object::FilePath;

    const LENGTHS: [usize; 4] = [5000, 0, 700, 9000];

    /// Creates files of these lengths below `o`. Returns them and the object's bytes.
    fn files(dir: &Path) -> (ObjectFiles, Vec<u8>) {
        let object: Vec<u8> = (0..14_700_u32).map(|n| (n / 7) as u8).collect();
        let (mut rest, mut entries) = (object.as_slice(), Vec::new());
        fs::create_dir(dir.join("o")).unwrap();
        for (n, length) in LENGTHS.into_iter().enumerate() {
            let (part, later) = rest.split_at(length);
            fs::write(dir.join(format!("o/f{n}")), part).unwrap();
            let path = FilePath::new(format!("f{n}").into()).unwrap();
            let kind = LayoutKind::File { length: length as u64 };
            entries.push(LayoutEntry {
                path,
                kind,
                mode: 0o644,
                modified: FileTime::default(),
                more: None,
            });
            rest = later;
        }
        let directory = Arc::new(OwnedFd::from(File::open(dir).unwrap()));
        let place = ObjectLocation { directory, name: b"o".to_vec() };
        (ObjectFiles::in_making(Arc::new(Layout::new(entries)), place), object)
    }

    /// Reads these bytes into buffers of 1000 bytes.
    fn read(files: &ObjectFiles, from: usize, to: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; to - from];
        let mut places: Vec<&mut [u8]> = bytes.chunks_mut(1000).collect();
        files.read_into(from as u64, &mut places).map(|()| bytes)
    }

    #[test]
    fn many_places_are_filled_from_one_file_or_several() {
        let dir = tempfile::tempdir().unwrap();
        let (files, object) = files(dir.path());
        for (from, to) in [(0, 5000), (300, 2500), (4000, 5001), (4500, 6900), (5700, 14_700)] {
            assert!(read(&files, from, to).unwrap() == object[from..to], "{from} to {to}");
        }
        assert_eq!(read(&files, 14_000, 14_701).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_truncated_file_is_named_in_the_error() {
        let dir = tempfile::tempdir().unwrap();
        let (files, _) = files(dir.path());
        fs::write(dir.path().join("o/f3"), [1; 2500]).unwrap();
        let why = read(&files, 5700, 9700).unwrap_err();
        assert_eq!(why.kind(), io::ErrorKind::UnexpectedEof);
        assert!(why.to_string().contains("o/f3"), "{why}");
    }
}
