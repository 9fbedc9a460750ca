//! What a cast takes on the disk.

use thalweg_wire::cast::{Layout, Offer};

/// An entry of a layout counts as so many bytes besides its content: what file systems take for an
/// inode and a directory's block.
const ENTRY: u64 = 4096;

/// A digest.
const DIGEST: u64 = 32;

/// Bytes that are kept beside an object: manifest, layout, the digests of all its symbols, and those of its
/// repair symbols, as many as the offer says. Not counted: the repair symbols that wait for their
/// blocks, which are few unless much is lost.
pub fn beside(offer: &Offer) -> u64 {
    let repair = u64::from(offer.shape.repair_symbols) * offer.blocks();
    let digests = offer.symbols().saturating_add(repair).saturating_mul(DIGEST);
    digests.saturating_add(offer.manifest_bytes()).saturating_add(offer.layout_bytes.into())
}

/// What its files, directories and links take without their content; the object itself is one and
/// counts nothing.
pub fn entries(layout: &Layout) -> u64 {
    (layout.entries.len().saturating_sub(1) as u64).saturating_mul(ENTRY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_units::WallTime;
    use thalweg_wire::{
        ObjectId,
        cast::{LayoutEntry, LayoutKind, Shape},
        object::FilePath,
    };

    fn offer(length: u64, shape: Shape) -> Offer {
        Offer {
            name: FilePath::new(b"image".to_vec()).unwrap(),
            object: ObjectId::from_bytes([0; 32]),
            length,
            layout: [0; 32],
            layout_bytes: 1000,
            shape,
            open: false,
            created: WallTime::from_unix_nanos(0),
            expiry: WallTime::from_unix_nanos(1),
        }
    }

    #[test]
    fn small_symbols_and_many_repair_symbols_take_room() {
        let manifest = |mib: u64| 41 + 32 * mib;
        let small = Shape { symbol_bytes: 1024, block_symbols: 1024, repair_symbols: 0 };
        assert_eq!(beside(&offer(64 << 20, small)), (2 << 20) + manifest(64) + 1000);
        let spare = Shape { symbol_bytes: 1 << 14, block_symbols: 64, repair_symbols: 1 << 14 };
        let digests = 64 * (64 + (1 << 14)) * 32;
        assert_eq!(beside(&offer(64 << 20, spare)), digests + manifest(64) + 1000);
    }

    #[test]
    fn a_file_alone_is_no_more_than_its_bytes() {
        let entry = |path: &str| LayoutEntry {
            path: FilePath::new(path.into()).unwrap(),
            kind: LayoutKind::Directory,
            mode: 0o755,
            modified_ns: 0,
        };
        assert_eq!(entries(&Layout { entries: vec![entry("")] }), 0);
        assert_eq!(entries(&Layout { entries: vec![entry(""), entry("a"), entry("b")] }), 8192);
    }
}
