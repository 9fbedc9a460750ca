//! Estimates of the memory of decoded requests.

use super::{Delivery, DescribedEntry, FileRef, Kind, ReadRequest, Request, Xattr};

/// The factor for spare capacity: a vector that grows while it is decoded may have twice the capacity that it needs.
const SPARE_FACTOR: usize = 2;

/// The bytes of an allocation beyond its content: a header, and up to 16 bytes for alignment.
const ALLOCATION: usize = 32;

/// The bytes of a file in a request, which has two allocations.
const FILE: usize = size_of::<FileRef>() + 2 * ALLOCATION;

impl Request {
    /// An upper bound of the memory of this request, bytes, which took `encoded` bytes on the wire; `None` for kinds
    /// without an estimate. All text and bytes in it are counted by their encoded length.
    pub fn memory(&self, encoded: usize) -> Option<usize> {
        let items = match self {
            Self::ReadAll(files) | Self::Check(files) => FILE * files.len(),
            Self::ReadParts(reads) | Self::CheckParts(reads) => {
                (size_of::<ReadRequest>() - size_of::<FileRef>() + FILE) * reads.len()
            }
            Self::Compare(delivery, _) | Self::Put { delivery, .. } | Self::Dress(delivery) => {
                delivery.items()
            }
            _ => return None,
        };
        Some(encoded.saturating_add(items).saturating_mul(SPARE_FACTOR))
    }
}

impl Delivery {
    /// The memory of the lists without text and bytes.
    fn items(&self) -> usize {
        let owned = |DescribedEntry(entry): &DescribedEntry| {
            let link = if matches!(entry.kind, Kind::Symlink { .. }) { ALLOCATION } else { 0 };
            let more = entry.more.as_ref().map_or(0, |more| {
                let holes = more.holes.as_ref().map_or(0, Vec::len);
                let xattrs = (size_of::<Xattr>() + 2 * ALLOCATION) * more.xattrs.len();
                size_of_val(&**more) + xattrs + size_of::<(u64, u64)>() * holes + 3 * ALLOCATION
            });
            ALLOCATION + link + more
        };
        let names = self.owners.users.len() + self.owners.groups.len();
        size_of::<DescribedEntry>() * self.entries.len()
            + self.entries.iter().map(owned).sum::<usize>()
            + (size_of::<(u32, Vec<u8>)>() + ALLOCATION) * names
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{
        Entry, FilePath, FileTime, Kind, Owners, Rules, Snapshot, TransferHash, encode,
    };

    #[test]
    fn the_estimate_of_a_usual_delivery_is_below_eight_times_its_encoding() {
        let snapshot = Snapshot { device: 1, inode: 2, size: 3, modified_ns: 4, changed_ns: 5 };
        let entry = |n: u32| Entry {
            root: 0,
            path: FilePath::new(format!("a/directory/of/some/depth/{n:0100}").into()).unwrap(),
            kind: Kind::File { snapshot },
            mode: 0o644,
            owner: 0,
            group: 0,
            modified: FileTime::from_nanos(6),
            more: None,
        };
        let entries = (0..4096).map(|n| DescribedEntry(entry(n))).collect();
        let delivery = Delivery {
            into: b"/x".to_vec(),
            rules: Rules::default(),
            entries,
            owners: Owners::default(),
        };
        let request = Request::Put { delivery, bytes: 0, check: TransferHash([0; 32]) };
        let encoded = encode(&request).len();
        let memory = request.memory(encoded).unwrap();
        assert!(memory > encoded && memory < 8 * encoded, "{encoded} {memory}");
        assert_eq!(Request::Sent(Vec::new()).memory(9), None);
    }

    #[test]
    fn allocations_of_short_texts_are_counted() {
        let snapshot = Snapshot { device: 0, inode: 0, size: 0, modified_ns: 0, changed_ns: 0 };
        let path = || FilePath::new(b"a".to_vec()).unwrap();
        let file = || FileRef { root: b"/".to_vec(), path: path(), snapshot };
        let read = || ReadRequest { file: file(), from: 0, bytes: 1 };
        // The smallest allocation of glibc takes 32 bytes, and each file has two.
        let least = |item: usize| SPARE_FACTOR * 1_000 * (item + 2 * 32);
        let all = Request::ReadAll((0..1_000).map(|_| file()).collect());
        assert!(all.memory(0).unwrap() >= least(size_of::<FileRef>()));
        let all = Request::ReadParts((0..1_000).map(|_| read()).collect());
        assert!(all.memory(0).unwrap() >= least(size_of::<ReadRequest>()));
        let xattr = || Xattr { name: b"user.a".to_vec(), value: b"b".to_vec() };
        let more = crate::object::ExtraMetadata {
            xattrs: (0..9).map(|_| xattr()).collect(),
            ..Default::default()
        };
        let entry = Entry {
            root: 0,
            path: path(),
            kind: Kind::Symlink { target: b"b".to_vec() },
            mode: 0,
            owner: 0,
            group: 0,
            modified: FileTime::from_nanos(0),
            more: Some(Box::new(more)),
        };
        let delivery = Delivery {
            into: Vec::new(),
            rules: Rules::default(),
            entries: vec![DescribedEntry(entry)],
            owners: Owners::default(),
        };
        // The allocations: the path, the link, the further fields, the list of attributes, and two for each attribute.
        let least = size_of::<Entry>() + 9 * size_of::<Xattr>() + (4 + 18) * 32;
        assert!(delivery.items() >= least);
    }
}
