//! The memory that a decoded request takes.

use super::{Delivery, Described, FileRef, ReadRequest, Request, Xattr};

/// A vector that grows while it is decoded may have twice the capacity that it needs.
const SPARE: usize = 2;

impl Request {
    /// An upper bound of the memory of this request, which took `encoded` bytes on the wire; `None` for kinds without
    /// an estimate. All text and bytes in it are counted by their encoded length.
    pub fn memory(&self, encoded: usize) -> Option<usize> {
        let items = match self {
            Self::ReadAll(files) | Self::Check(files) => size_of::<FileRef>() * files.len(),
            Self::ReadParts(reads) | Self::CheckParts(reads) => {
                size_of::<ReadRequest>() * reads.len()
            }
            Self::Compare(delivery, _) | Self::Put { delivery, .. } | Self::Dress(delivery) => {
                delivery.items()
            }
            _ => return None,
        };
        Some(encoded.saturating_add(items).saturating_mul(SPARE))
    }
}

impl Delivery {
    /// The memory of its lists, except text and bytes.
    fn items(&self) -> usize {
        let more = |Described(entry): &Described| {
            entry.more.as_ref().map_or(0, |more| {
                let holes = more.holes.as_ref().map_or(0, Vec::len);
                size_of_val(&**more)
                    + size_of::<Xattr>() * more.xattrs.len()
                    + size_of::<(u64, u64)>() * holes
            })
        };
        let names = self.owners.users.len() + self.owners.groups.len();
        size_of::<Described>() * self.entries.len()
            + self.entries.iter().map(more).sum::<usize>()
            + size_of::<(u32, Vec<u8>)>() * names
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{Check, Entry, FilePath, FileTime, Kind, Owners, Rules, Snapshot, encode};

    #[test]
    fn a_usual_delivery_takes_a_fraction_of_what_any_request_may_take() {
        let snapshot = Snapshot { device: 1, inode: 2, size: 3, modified_ns: 4, changed_ns: 5 };
        let entry = |n: u32| Entry {
            root: 0,
            path: FilePath::new(format!("a/directory/of/some/depth/{n:0100}").into()).unwrap(),
            kind: Kind::File { snapshot },
            mode: 0o644,
            owner: 0,
            group: 0,
            modified: FileTime::of_nanos(6),
            more: None,
        };
        let entries = (0..4096).map(|n| Described(entry(n))).collect();
        let delivery = Delivery {
            into: b"/x".to_vec(),
            rules: Rules::default(),
            entries,
            owners: Owners::default(),
        };
        let request = Request::Put { delivery, bytes: 0, check: Check([0; 32]) };
        let encoded = encode(&request).len();
        let memory = request.memory(encoded).unwrap();
        assert!(memory > encoded && memory < 8 * encoded, "{encoded} {memory}");
        assert_eq!(Request::Sent(Vec::new()).memory(9), None);
    }
}
