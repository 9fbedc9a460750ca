//! Reads of files as requests take them.

use thalweg_files::inventory::{FileNo, Inventory, Piece};
use thalweg_wire::object::{FileRef, ReadRequest, Request};

/// The most bytes of a request for parts: three of them fit what a [`Remote`](thalweg_files::remote::Remote) sends before the first is
/// answered, so that the next is read from the source's disk while one comes.
const REQUEST: usize = 20 * 1024;

/// The most bytes of a read in a request: its numbers take 10 at most, its names are as long as
/// they are.
pub(super) fn length(file: &FileRef) -> usize {
    file.root.len() + file.path.as_bytes().len() + 100
}

/// How many of these files' reads go into one request, at least one. However long names are, a
/// request is shorter than is allowed.
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

/// The read of a part; `None` for a file that is not in the inventory.
pub(super) fn read(inventory: &Inventory, part: &Piece) -> Option<ReadRequest> {
    let file = inventory.get(part.file)?.file.clone();
    Some(ReadRequest { file, from: part.range.start, bytes: part.bytes() })
}

/// All of them in one request.
pub(super) fn request(inventory: &Inventory, pieces: &[Piece]) -> Request {
    Request::ReadParts(pieces.iter().filter_map(|piece| read(inventory, piece)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_files::inventory::Wanted;
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
            // Components of 200 bytes: a name has 255 at most.
            let text: String =
                (0..*length).map(|n| if n % 200 == 100 { '/' } else { 'x' }).collect();
            let path = FilePath::new(text.into_bytes()).unwrap();
            let file = FileRef { root: b"/data".to_vec(), path, snapshot };
            Wanted { source: 0, file, missing: std::iter::once(0..u64::MAX).collect() }
        };
        Inventory { files: names.iter().map(wanted).collect() }
    }

    #[test]
    fn requests_are_short_whatever_files_are_called() {
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
