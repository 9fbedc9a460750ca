//! Many things that are left at a node at once.

use super::{Check, Described, Failure, FilePath, Keep, Owners};
use serde::{Deserialize, Deserializer, Serialize, de};
use std::{fmt, marker::PhantomData};

/// The most entries of a [`Delivery`]: some 400 KiB of a request, and what one sync makes durable.
pub const MAX_DELIVERED: usize = 4096;

/// The most users, and the most groups, whose names are looked up for one delivery.
pub const MAX_NAMED: usize = 1024;

/// The most names of [`Surplus::keep`].
pub const MAX_KEPT: usize = 16_384;

/// Files that one `Compare` lets hash by [`Rules::WHOLE`]: an hour of a slow disk. A longer file comes alone.
pub const MAX_HASHED: u64 = 64 << 30;

/// The most patterns of [`Surplus::exclude`].
const MAX_EXCLUDES: usize = 1000;

/// The most reasons of one reply; of further failures only that there were any.
pub const MAX_REASONS: usize = 64;

/// What the sender wants of an inbox; the inbox's settings may allow less.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rules(u32);

impl Rules {
    /// Another file of the same name is replaced.
    pub const REPLACE: Self = Self(1);
    /// Files are compared by their whole content, whatever their times; else by samples of it where size and time
    /// are the same.
    pub const WHOLE: Self = Self(2);
    /// The owners of files are kept.
    pub const OWNER: Self = Self(4);
    /// The groups of files are kept.
    pub const GROUP: Self = Self(8);
    /// Extended attributes are kept.
    pub const XATTRS: Self = Self(16);
    /// Access control lists are kept.
    pub const ACLS: Self = Self(32);
    /// With [`REPLACE`](Self::REPLACE): a directory that is not empty gives way to a file or link of its name.
    pub const REMOVE: Self = Self(64);
    /// The target directory itself is part of what is sent: it gets its mode at the end.
    pub const ROOT: Self = Self(128);

    /// The kinds of extended attributes that are kept.
    pub fn attributes(self) -> Keep {
        Keep::XATTRS.only_if(self.has(Self::XATTRS)).and(Keep::ACLS.only_if(self.has(Self::ACLS)))
    }

    /// The rules of `self` that are not in `other`.
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The rules that are in both.
    pub const fn common(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Both.
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Only if so.
    pub const fn only_if(self, is_wanted: bool) -> Self {
        if is_wanted { self } else { Self(0) }
    }

    /// Whether all of the other is in it.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Things that are, or are to be, below a directory of the serving host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivery {
    /// The directory, absolute on the serving host.
    pub into: Vec<u8>,
    /// How.
    pub rules: Rules,
    /// At most [`MAX_DELIVERED`], directories before what is in them. An empty path is the directory itself.
    #[serde(deserialize_with = "few::<_, _, MAX_DELIVERED>")]
    pub entries: Vec<Described>,
    /// The names of the users and groups whose ids are in the entries. The receiver looks up at most [`MAX_NAMED`] of
    /// each and uses its own ids for the names that it knows.
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
    pub check: Check,
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
    /// At most [`MAX_DELIVERED`].
    #[serde(deserialize_with = "few::<_, _, MAX_DELIVERED>")]
    pub links: Vec<Link>,
    /// Creates the links. If false, the receiver only reports which links would fail, and a file to link to need not
    /// exist yet.
    pub make: bool,
}

/// What lies at an entry's path; nothing is changed by the look.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Found {
    /// Nothing, or what would be replaced.
    Nothing,
    /// These bytes of it are on the disk, ascending; it has not its name yet.
    Part(Vec<(u64, u64)>),
    /// A file of this size and time (by [`Rules::WHOLE`] of this size): its content is to be compared.
    Alike,
    /// It is there.
    Same,
    /// The content is there, but the mode, time, owner, group or an extended attribute differs and would be set.
    Undressed,
    /// It would not be taken: an index of [`Compared::reasons`].
    Refused(u8),
}

/// The reply to a `Compare`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compared {
    /// Of each entry.
    #[serde(deserialize_with = "few::<_, _, MAX_DELIVERED>")]
    pub found: Vec<Found>,
    /// Why some would not be taken.
    #[serde(deserialize_with = "few::<_, _, MAX_REASONS>")]
    pub reasons: Vec<Failure>,
    /// Bytes and files that the file system of the directory has room for, if it says so.
    pub room: Option<(u64, u64)>,
    /// The rules that the receiver does not follow, and why.
    pub declined: Option<(Rules, Failure)>,
}

/// What was not done of a request, by the reason; the numbers are those of its entries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Undone(
    /// Reasons, and what is not done for each.
    #[serde(deserialize_with = "few::<_, _, MAX_REASONS>")]
    pub Vec<(Failure, Vec<u32>)>,
);

/// Names of a directory in a range that are to be kept; all others in it go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Surplus {
    /// As [`Delivery::into`].
    pub into: Vec<u8>,
    /// The directory below it.
    pub directory: FilePath,
    /// Names behind this one; empty: from the first on.
    pub after: Vec<u8>,
    /// Names up to this one; empty: to the last.
    pub to: Vec<u8>,
    /// These stay.
    #[serde(deserialize_with = "few::<_, _, MAX_KEPT>")]
    pub keep: Vec<Vec<u8>>,
    /// Else it is only said what would go.
    pub remove: bool,
    /// Patterns of what stays, at every depth, as in [`ListRequest::exclude`](super::ListRequest::exclude). Their paths
    /// begin below `into`.
    #[serde(deserialize_with = "few::<_, _, MAX_EXCLUDES>")]
    pub exclude: Vec<Vec<u8>>,
}

/// The reply to a [`Surplus`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removed {
    /// How many went, or would; directories with all in them count as one.
    pub count: u64,
    /// The first of their names.
    pub names: Vec<Vec<u8>>,
    /// What could not be removed, the first names, and why.
    pub failed: Vec<(Vec<u8>, Failure)>,
}

impl Undone {
    /// Notes one more. Reasons beyond [`MAX_REASONS`] count as the last one.
    pub fn add(&mut self, number: u32, why: Failure) {
        let why = why.cut(super::MAX_WHY / 4);
        let known = self.0.iter().position(|(known, _)| *known == why);
        if known.is_none() && self.0.len() < MAX_REASONS {
            return self.0.push((why, vec![number]));
        }
        let at = known.unwrap_or(self.0.len() - 1);
        self.0[at].1.push(number);
    }

    /// Reasons by the numbers.
    pub fn by_number(&self) -> impl Iterator<Item = (u32, &Failure)> {
        self.0.iter().flat_map(|(why, numbers)| numbers.iter().map(move |number| (*number, why)))
    }
}

impl Compared {
    /// That an entry would not be taken. Reasons beyond [`MAX_REASONS`] count as the last one.
    pub fn refuse(&mut self, why: Failure) -> Found {
        let why = why.cut(super::MAX_WHY / 4);
        let known = self.reasons.iter().position(|known| *known == why);
        let at = known.unwrap_or_else(|| {
            if self.reasons.len() < MAX_REASONS {
                self.reasons.push(why);
            }
            self.reasons.len() - 1
        });
        Found::Refused(at as u8)
    }
}

/// The hashes of a `Compare`, none or one for each entry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checks(
    /// In the order of the entries.
    #[serde(deserialize_with = "few::<_, _, MAX_DELIVERED>")]
    pub Vec<Check>,
);

/// A list of at most `N`: what is longer ends before it takes memory.
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
    fn a_list_is_as_long_as_it_may_be_and_no_longer() {
        let check = Check([7; 32]);
        let again = |n: usize| decode::<Checks>(&encode(&Checks(vec![check; n]))[4..]);
        assert_eq!(again(MAX_DELIVERED), Ok(Checks(vec![check; MAX_DELIVERED])));
        assert_eq!(again(MAX_DELIVERED + 1), Err(MessageError::Invalid));
        // A number that nothing follows takes no memory.
        assert_eq!(decode::<Checks>(&[0xff, 0xff, 0xff, 0xff, 0x0f]), Err(MessageError::Invalid));
    }

    #[test]
    fn reasons_are_few_whatever_there_are() {
        let why = |n: usize| Failure::System(format!("reason {n}"));
        let (mut undone, mut compared) = (Undone::default(), Compared::default());
        for n in 0..MAX_DELIVERED {
            undone.add(n as u32, why(n));
            let found = compared.refuse(why(n / 2));
            compared.found.push(found);
        }
        assert_eq!((undone.0.len(), compared.reasons.len()), (MAX_REASONS, MAX_REASONS));
        assert_eq!(undone.by_number().count(), MAX_DELIVERED);
        assert_eq!(compared.found[2..4], [Found::Refused(1), Found::Refused(1)]);
        assert_eq!(compared.found.last(), Some(&Found::Refused(63)));
        assert!(encode(&undone).len() < 32 << 10, "both ends' sockets hold it");
    }

    #[test]
    fn rules_are_a_set() {
        let both = Rules::REPLACE.and(Rules::WHOLE);
        assert!(both.has(Rules::WHOLE) && !Rules::WHOLE.has(both));
        assert_eq!(Rules::REPLACE.only_if(false), Rules::default());
    }
}
