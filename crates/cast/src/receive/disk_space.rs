//! The disk space of a cast.

use thalweg_wire::cast::{Layout, Offer};

/// Bytes that count for each entry of a layout besides its content: what file systems use for an inode and a directory
/// block.
const ENTRY: u64 = 4096;

/// Bytes of a digest.
const DIGEST: u64 = 32;

/// Bytes stored beside an object: the manifest, the layout, and the digests of all its symbols and of the repair
/// symbols that the offer announces. Not counted: repair symbols that wait for their block to be solved. They are few
/// unless much is lost.
pub fn overhead(offer: &Offer) -> u64 {
    let repair = u64::from(offer.shape.repair_symbols) * offer.blocks();
    let digests = offer.symbols().saturating_add(repair).saturating_mul(DIGEST);
    digests.saturating_add(offer.manifest_bytes()).saturating_add(offer.layout_bytes.into())
}

/// Bytes of an object's files, directories and links besides their content. The root entry is not counted.
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
        object::{FilePath, FileTime},
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
        assert_eq!(overhead(&offer(64 << 20, small)), (2 << 20) + manifest(64) + 1000);
        let spare = Shape { symbol_bytes: 1 << 14, block_symbols: 64, repair_symbols: 1 << 14 };
        let digests = 64 * (64 + (1 << 14)) * 32;
        assert_eq!(overhead(&offer(64 << 20, spare)), digests + manifest(64) + 1000);
    }

    #[test]
    fn a_single_file_counts_only_its_bytes() {
        let entry = |path: &str| LayoutEntry {
            path: FilePath::new(path.into()).unwrap(),
            kind: LayoutKind::Directory,
            mode: 0o755,
            modified: FileTime::default(),
            more: None,
        };
        assert_eq!(entries(&Layout::new(vec![entry("")])), 0);
        assert_eq!(entries(&Layout::new(vec![entry(""), entry("a"), entry("b")])), 8192);
    }
}
