//! Splits reads of files into requests.

use thalweg_files::inventory::{FileNo, Inventory, Piece};
use thalweg_wire::object::{FileRef, ReadRequest, Request};

/// The maximum size of a request for parts, bytes. A [`Remote`](thalweg_files::remote::Remote) sends three of this size
/// before the first is answered, so that the source reads the next from disk while one arrives.
const REQUEST: usize = 20 * 1024;

/// The maximum encoded size of a read, bytes: its names, and its numbers at 10 bytes or less each.
pub(super) fn length(file: &FileRef) -> usize {
    file.root.len() + file.path.as_bytes().len() + 100
}

/// The number of reads of these files that fit into one request, at least one. A request stays below the allowed size
/// however long the names are.
pub(super) fn fitting(inventory: &Inventory, files: impl Iterator<Item = FileNo>) -> usize {
    let mut room = REQUEST;
    let fits = files.take_while(|file| {
        let length = inventory.get(*file).map_or(0, |wanted| length(&wanted.file));
        let fits = length <= room;
        room = room.saturating_sub(length);
        fits
    });
    fits.count().max(1)
}

/// Returns the read of a part; `None` if the file is not in the inventory.
pub(super) fn read(inventory: &Inventory, part: &Piece) -> Option<ReadRequest> {
    let file = inventory.get(part.file)?.file.clone();
    Some(ReadRequest { file, from: part.range.start, bytes: part.bytes() })
}

/// Returns one request for all pieces.
pub(super) fn request(inventory: &Inventory, pieces: &[Piece]) -> Request {
    Request::ReadParts(pieces.iter().filter_map(|piece| read(inventory, piece)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_files::inventory::MissingFile;
    use thalweg_wire::object::{FilePath, MAX_REQUEST, Snapshot, encode};

    fn inventory(names: &[usize]) -> Inventory {
        let wanted = |length: &usize| {
            let snapshot = Snapshot {
                device: u64::MAX,
                inode: u64::MAX,
                size: u64::MAX,
                modified_ns: i64::MAX,
                changed_ns: i64::MAX,
            };
            // A path component has at most 255 bytes: use components of 200.
            let text: String =
                (0..*length).map(|n| if n % 200 == 100 { '/' } else { 'x' }).collect();
            let path = FilePath::new(text.into_bytes()).unwrap();
            let file = FileRef { root: b"/data".to_vec(), path, snapshot };
            MissingFile { source: 0, file, missing: std::iter::once(0..u64::MAX).collect() }
        };
        Inventory { files: names.iter().map(wanted).collect() }
    }

    #[test]
    fn requests_stay_short_with_names_of_any_length() {
        for (names, fits) in [(vec![3_990; 200], 5), (vec![10; 1_000], 178), (vec![4_000], 1)] {
            let inventory = inventory(&names);
            let files = || (0..names.len() as u32).map(FileNo);
            let count = fitting(&inventory, files());
            assert_eq!(count, fits);
            let piece = |file| Piece { file, range: 0..u64::MAX };
            let pieces: Vec<Piece> = files().take(count).map(piece).collect();
            let encoded = encode(&request(&inventory, &pieces)).len();
            assert!(encoded <= REQUEST && REQUEST < MAX_REQUEST, "{encoded}");
        }
    }
}
