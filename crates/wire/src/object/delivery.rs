//! Deliveries: many files, directories and links that a client stores at a node with one request.

use super::{DescribedEntry, Failure, FilePath, Keep, Owners, TransferHash};
use serde::{Deserialize, Deserializer, Serialize, de};
use std::{fmt, marker::PhantomData};

/// The maximum number of entries of a [`Delivery`]. They take some 400 KiB of a request, and one sync makes them
/// durable.
pub const MAX_DELIVERED: usize = 4096;

/// The maximum number of users, and of groups, whose names are looked up for one delivery.
pub const MAX_NAMED: usize = 1024;

/// The maximum number of names of [`SurplusRemoval::keep`].
pub const MAX_KEPT: usize = 16_384;

/// The maximum bytes of files that one `Compare` may have hashed by [`Rules::WHOLE`]: an hour on a slow disk. A longer
/// file is compared alone.
pub const MAX_HASHED: u64 = 64 << 30;

/// The maximum number of patterns of [`SurplusRemoval::exclude`].
const MAX_EXCLUDES: usize = 1000;

/// The maximum number of different reasons in one reply. Further ones are reported as the last one.
pub const MAX_REASONS: usize = 64;

/// A set of rules that the sender requests for an inbox, whose settings may allow less.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rules(u32);

impl Rules {
    /// Replace existing files of the same name.
    pub const REPLACE: Self = Self(1);
    /// Compare files by their whole content, whatever their times. Otherwise files of equal size and time are compared
    /// by samples of their content.
    pub const WHOLE: Self = Self(2);
    /// Keep the owners of files.
    pub const OWNER: Self = Self(4);
    /// Keep the groups of files.
    pub const GROUP: Self = Self(8);
    /// Keep extended attributes.
    pub const XATTRS: Self = Self(16);
    /// Keep access control lists.
    pub const ACLS: Self = Self(32);
    /// With [`REPLACE`](Self::REPLACE): replace non-empty directories by files or links of the same name, too.
    pub const REMOVE: Self = Self(64);
    /// The target directory itself is part of the delivery, and gets its mode at the end.
    pub const ROOT: Self = Self(128);

    /// The kinds of extended attributes to keep.
    pub fn attributes(self) -> Keep {
        Keep::XATTRS.only_if(self.has(Self::XATTRS)).and(Keep::ACLS.only_if(self.has(Self::ACLS)))
    }

    /// The rules of `self` that are not in `other`.
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The rules in both sets.
    pub const fn common(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The rules in either set.
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The set if the condition holds; otherwise the empty set.
    pub const fn only_if(self, is_wanted: bool) -> Self {
        if is_wanted { self } else { Self(0) }
    }

    /// Whether the set contains all rules of `other`.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Entries that exist, or are to be created, below a directory of the serving host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivery {
    /// The absolute path of the directory on the serving host.
    pub into: Vec<u8>,
    pub rules: Rules,
    /// The entries, at most [`MAX_DELIVERED`], directories before their content. An empty path is the directory itself.
    #[serde(deserialize_with = "few::<_, _, MAX_DELIVERED>")]
    pub entries: Vec<DescribedEntry>,
    /// The names of the users and groups whose ids are in the entries. The receiver looks up at most [`MAX_NAMED`] of
    /// each, and uses its own ids for names that it knows.
    pub owners: Owners,
}

/// A hard link to a file below the directory of a delivery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// The file to link to.
    pub first: FilePath,
    /// The length of the file.
    pub size: u64,
    /// A hash of samples of its content, which proves that the sender has the file.
    pub check: TransferHash,
    /// The path of the link.
    pub name: FilePath,
}

/// A request to create hard links.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Links {
    /// The directory, as [`Delivery::into`].
    pub into: Vec<u8>,
    /// Whether existing files with these names are replaced.
    pub rules: Rules,
    /// The links, at most [`MAX_DELIVERED`].
    #[serde(deserialize_with = "few::<_, _, MAX_DELIVERED>")]
    pub links: Vec<Link>,
    /// Whether to create the links. If false, the receiver only reports which links would fail, and the files to link
    /// to need not exist yet.
    pub make: bool,
}

/// The state of an entry's path. Determining it changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PathState {
    /// Nothing exists there, or the existing file would be replaced.
    Nothing,
    /// The file is incomplete and does not have its final name yet. These ranges of bytes, ascending, are on the disk.
    Part(Vec<(u64, u64)>),
    /// A file of the same size and time exists (with [`Rules::WHOLE`], of the same size). Its content must be compared.
    SameSizeAndTime,
    /// The entry exists with the same content and metadata.
    Same,
    /// The content is the same, but the mode, time, owner, group or an extended attribute differs and would be set.
    MetadataDiffers,
    /// The entry would be refused; contains an index of [`Comparison::reasons`].
    Refused(u8),
}

/// The reply to a `Compare`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Comparison {
    /// The state of each entry's path, in the order of the entries.
    #[serde(deserialize_with = "few::<_, _, MAX_DELIVERED>")]
    pub found: Vec<PathState>,
    /// Why entries would be refused.
    #[serde(deserialize_with = "few::<_, _, MAX_REASONS>")]
    pub reasons: Vec<Failure>,
    /// The free bytes and files of the directory's file system, if known.
    pub room: Option<(u64, u64)>,
    /// The rules that the receiver does not follow, and why.
    pub declined: Option<(Rules, Failure)>,
}

/// The entries of a request that failed, by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedEntries(
    /// Reasons, and for each the indices of the entries that failed.
    #[serde(deserialize_with = "few::<_, _, MAX_REASONS>")]
    pub Vec<(Failure, Vec<u32>)>,
);

/// A request to remove the entries of a directory, within a range of names, that are not listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SurplusRemoval {
    /// As [`Delivery::into`].
    pub into: Vec<u8>,
    /// The path of the directory below `into`.
    pub directory: FilePath,
    /// The range begins after this name; empty: at the first name.
    pub after: Vec<u8>,
    /// The range ends with this name; empty: at the last name.
    pub to: Vec<u8>,
    /// The names to keep.
    #[serde(deserialize_with = "few::<_, _, MAX_KEPT>")]
    pub keep: Vec<Vec<u8>>,
    /// Whether to remove entries. If false, the receiver only reports which it would remove.
    pub remove: bool,
    /// Patterns of entries to keep, at every depth, as in [`ListRequest::exclude`](super::ListRequest::exclude). Their
    /// paths begin below `into`.
    #[serde(deserialize_with = "few::<_, _, MAX_EXCLUDES>")]
    pub exclude: Vec<Vec<u8>>,
}

/// The reply to a [`SurplusRemoval`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovalReport {
    /// The number of entries that were or would be removed; a directory with its content counts as one.
    pub count: u64,
    /// The first of the names.
    pub names: Vec<Vec<u8>>,
    /// The first of the names that could not be removed, and why.
    pub failed: Vec<(Vec<u8>, Failure)>,
}

impl FailedEntries {
    /// Adds a failed entry. Reasons beyond [`MAX_REASONS`] count as the last one.
    pub fn add(&mut self, number: u32, why: Failure) {
        let why = why.cut(super::MAX_WHY / 4);
        let known = self.0.iter().position(|(known, _)| *known == why);
        if known.is_none() && self.0.len() < MAX_REASONS {
            return self.0.push((why, vec![number]));
        }
        let at = known.unwrap_or(self.0.len() - 1);
        self.0[at].1.push(number);
    }

    /// The indices of the failed entries, with the reasons.
    pub fn failures(&self) -> impl Iterator<Item = (u32, &Failure)> {
        self.0.iter().flat_map(|(why, numbers)| numbers.iter().map(move |number| (*number, why)))
    }
}

impl Comparison {
    /// Records the reason why an entry would be refused. Reasons beyond [`MAX_REASONS`] count as the last one.
    pub fn refuse(&mut self, why: Failure) -> PathState {
        let why = why.cut(super::MAX_WHY / 4);
        let known = self.reasons.iter().position(|known| *known == why);
        let at = known.unwrap_or_else(|| {
            if self.reasons.len() < MAX_REASONS {
                self.reasons.push(why);
            }
            self.reasons.len() - 1
        });
        PathState::Refused(at as u8)
    }
}

/// The hashes of a `Compare`: none, or one for each entry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransferHashes(
    /// The hashes, in the order of the entries.
    #[serde(deserialize_with = "few::<_, _, MAX_DELIVERED>")]
    pub Vec<TransferHash>,
);

/// Deserialises a list of at most `N` items. A longer list is an error before it takes memory.
fn few<'de, D, T, const N: usize>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct Few<T, const N: usize>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>, const N: usize> de::Visitor<'de> for Few<T, N> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a list of at most {N}")
        }

        fn visit_seq<A: de::SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
            let mut all = Vec::with_capacity(list.size_hint().unwrap_or(0).min(64));
            while let Some(next) = list.next_element()? {
                if all.len() == N {
                    return Err(de::Error::invalid_length(N + 1, &self));
                }
                all.push(next);
            }
            Ok(all)
        }
    }

    deserializer.deserialize_seq(Few::<T, N>(PhantomData))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{MessageError, decode, encode};

    #[test]
    fn the_length_of_a_list_is_bounded() {
        let check = TransferHash([7; 32]);
        let again =
            |n: usize| decode::<TransferHashes>(&encode(&TransferHashes(vec![check; n]))[4..]);
        assert_eq!(again(MAX_DELIVERED), Ok(TransferHashes(vec![check; MAX_DELIVERED])));
        assert_eq!(again(MAX_DELIVERED + 1), Err(MessageError::Invalid));
        // A large length without items allocates nothing.
        assert_eq!(
            decode::<TransferHashes>(&[0xff, 0xff, 0xff, 0xff, 0x0f]),
            Err(MessageError::Invalid)
        );
    }

    #[test]
    fn the_number_of_reasons_is_bounded() {
        let why = |n: usize| Failure::System(format!("reason {n}"));
        let (mut undone, mut compared) = (FailedEntries::default(), Comparison::default());
        for n in 0..MAX_DELIVERED {
            undone.add(n as u32, why(n));
            let found = compared.refuse(why(n / 2));
            compared.found.push(found);
        }
        assert_eq!((undone.0.len(), compared.reasons.len()), (MAX_REASONS, MAX_REASONS));
        assert_eq!(undone.failures().count(), MAX_DELIVERED);
        assert_eq!(compared.found[2..4], [PathState::Refused(1), PathState::Refused(1)]);
        assert_eq!(compared.found.last(), Some(&PathState::Refused(63)));
        assert!(encode(&undone).len() < 32 << 10, "both ends' sockets hold it");
    }

    #[test]
    fn rules_are_a_set() {
        let both = Rules::REPLACE.and(Rules::WHOLE);
        assert!(both.has(Rules::WHOLE) && !Rules::WHOLE.has(both));
        assert_eq!(Rules::REPLACE.only_if(false), Rules::default());
    }
}
