//! Stores for tests.

use super::{KnownObject, Pages, Store};
use crate::disk::{ObjectFiles, ObjectLocation, open_directory};
use std::{path::Path, sync::Arc};
use thalweg_fountain::{Geometry, HaveSet, digest::ObjectHasher};
use thalweg_units::WallTime;
use thalweg_wire::{
    Manifest,
    cast::{CastId, Layout, LayoutEntry, LayoutKind, Offer, Shape},
    object::{FilePath, FileTime},
};

/// Creates a store in `dir` for an object with this content; its digests are known, and no symbol is present.
///
/// # Panics
/// On I/O errors.
pub fn empty(dir: &Path, content: &[u8]) -> Arc<Store> {
    let length = content.len() as u64;
    let geometry = Geometry::for_length(length).unwrap();
    let file = |name| std::fs::File::create_new(dir.join(name)).unwrap();
    drop(file("pages"));
    let pages = std::fs::File::options().read(true).write(true).open(dir.join("pages"));
    let pages = Pages::new(pages.unwrap());
    let mut hasher = ObjectHasher::new(geometry);
    let mut keep = |page| pages.write(&geometry, &page).unwrap();
    hasher.update(content, &mut keep);
    let summary = hasher.finish(&mut keep);
    let manifest = Manifest::of_digests(length, summary.chunks).unwrap();
    file("made").set_len(length).unwrap();
    let path = FilePath::new(Vec::new()).unwrap();
    let kind = LayoutKind::File { length };
    let entries =
        vec![LayoutEntry { path, kind, mode: 0o600, modified: FileTime::default(), more: None }];
    let directory = Arc::new(open_directory(dir).unwrap());
    let place = ObjectLocation { directory, name: b"made".to_vec() };
    let files = ObjectFiles::in_making(Arc::new(Layout::new(entries)), place);
    let offer = Offer {
        name: FilePath::new(b"made".to_vec()).unwrap(),
        object: manifest.object(),
        length,
        layout: [0; 32],
        layout_bytes: 0,
        shape: Shape {
            symbol_bytes: geometry.symbol_bytes(),
            block_symbols: geometry.block_symbols(),
            repair_symbols: geometry.repair_symbols(),
        },
        open: false,
        created: WallTime::from_unix_nanos(0),
        expiry: WallTime::from_unix_nanos(1),
    };
    let manifest = Arc::new(manifest);
    let known = KnownObject { id: CastId::from_bytes([0; 16]), offer, geometry, manifest };
    Store::new(known, files, pages, HaveSet::empty(&geometry))
}
