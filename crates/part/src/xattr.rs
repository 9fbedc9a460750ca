//! Extended attributes and access control lists of an open file or directory (xattr(7), acl(5)).
//!
//! An access control list is a system attribute in the format of `linux/posix_acl_xattr.h`. Ordinary users keep
//! `user.*`; root keeps all except the system's own attributes and the label of the host's policy.

use rustix::{
    fs::{XattrFlags, getxattr, listxattr, removexattr, setxattr},
    io::Errno,
};
use std::{collections::BTreeMap, os::fd::AsFd};
use thalweg_base::descriptors::path_of;
use thalweg_wire::object::{Keep, MAX_XATTRS, Xattr};

/// The attributes that hold access control lists: that of a file or directory, and the default of a directory for new
/// files in it.
const LISTS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];

/// Whether an attribute of this name is an access control list.
pub fn is_list(name: &[u8]) -> bool {
    LISTS.contains(&name)
}

/// The prefix of attributes that `get` sets on its files; they describe this copy only.
const OWN_PREFIX: &[u8] = b"user.thalweg.";

/// The longest list of names, and the longest value (xattr(7)).
const MAX_LENGTH: usize = 64 << 10;

/// The label of this host's security policy, which no other host may set.
const LABEL: &[u8] = b"security.selinux";

/// Capabilities that a program gets whichever user runs it, like a set-user-ID bit (capabilities(7)).
pub const CAPABILITY: &[u8] = b"security.capability";

/// The origin of a request to set attributes, which decides what is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttributeOrigin {
    /// This host's user asks for it; root may set all attributes.
    User,
    /// Another host sends it; it may set `user.*`, and nothing that gives rights to programs.
    Guest,
}

/// Whether the attribute of this name is kept.
fn is_kept(name: &[u8], keep: Keep, origin: AttributeOrigin) -> bool {
    if is_list(name) {
        return keep.has(Keep::ACLS);
    }
    let has_all = origin == AttributeOrigin::User && rustix::process::geteuid().is_root();
    let is_allowed =
        name.starts_with(b"user.") || has_all && !name.starts_with(b"system.") && name != LABEL;
    keep.has(Keep::XATTRS) && is_allowed && !name.starts_with(OWN_PREFIX)
}

/// Reads the attributes that are kept, sorted by name. A file system without attributes has none.
///
/// # Errors
/// The system's error; `E2BIG` if they take more than [`MAX_XATTRS`].
pub fn read(file: impl AsFd, keep: Keep) -> Result<Vec<Xattr>, Errno> {
    read_as(file, keep, AttributeOrigin::User)
}

fn read_as(file: impl AsFd, keep: Keep, origin: AttributeOrigin) -> Result<Vec<Xattr>, Errno> {
    let path = path_of(&file);
    let mut names = vec![0_u8; MAX_LENGTH];
    let length = match listxattr(&path, &mut names[..]) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(Vec::new()),
        listed => listed?,
    };
    let names = names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let names = names.filter(|name| is_kept(name, keep, origin));
    let mut found = Vec::new();
    let mut value = Vec::new();
    for name in names {
        value.resize(MAX_LENGTH, 0);
        match getxattr(&path, name, &mut value[..]) {
            Ok(length) => {
                found.push(Xattr { name: name.to_vec(), value: value[..length].to_vec() })
            }
            // It was removed meanwhile, or it is a list that only repeats the mode.
            Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
            Err(other) => return Err(other),
        }
    }
    found.sort();
    if found.iter().map(Xattr::bytes).sum::<usize>() > MAX_XATTRS {
        return Err(Errno::TOOBIG);
    }
    Ok(found)
}

/// Whether the kept attributes of `file` differ from these.
pub fn differ(file: impl AsFd, wanted: &[Xattr], keep: Keep, origin: AttributeOrigin) -> bool {
    let wanted = wanted.iter().filter(|xattr| is_kept(&xattr.name, keep, origin));
    read_as(file, keep, origin).is_ok_and(|found| !found.iter().eq(wanted))
}

/// Sets these attributes on `file` and removes others, as far as they are kept. The process must be allowed to read and
/// write the file. Set the mode afterwards: it gives the group the same rights as the source's list.
///
/// # Errors
/// The system's error; the other attributes are set.
pub fn put(
    file: impl AsFd,
    wanted: &[Xattr],
    keep: Keep,
    origin: AttributeOrigin,
) -> Result<(), Errno> {
    let path = path_of(&file);
    let is_meant = |name: &[u8]| is_kept(name, keep, origin);
    let meant: BTreeMap<&[u8], &[u8]> =
        wanted.iter().map(|x| (&x.name[..], &x.value[..])).filter(|(n, _)| is_meant(n)).collect();
    let found = read_as(&file, keep, origin)?;
    let mut done = Ok(());
    for known in found.iter().filter(|x| is_meant(&x.name) && !meant.contains_key(&x.name[..])) {
        done = done.and(removexattr(&path, &known.name[..]));
    }
    for (name, value) in meant {
        let is_there = found.iter().any(|x| x.name == name && x.value == value);
        if !is_there {
            done = done.and(setxattr(&path, name, value, XattrFlags::empty()));
        }
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn attributes_are_copied_from_one_file_to_another() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| File::create(dir.path().join(name)).unwrap();
        let (one, other) = (file("one"), file("other"));
        let set = |file: &File, name: &str, value: &[u8]| {
            setxattr(path_of(file), name, value, XattrFlags::empty())
        };
        if set(&one, "user.a", b"1").is_err() {
            return eprintln!("SKIPPED: {} has no extended attributes", dir.path().display());
        }
        set(&one, "user.b", &[0, 255]).unwrap();
        set(&one, "user.thalweg.source", b"{}").unwrap();
        set(&other, "user.c", b"3").unwrap();
        let wanted = read(&one, Keep::XATTRS).unwrap();
        assert_eq!(wanted.len(), 2, "{wanted:?}");
        let clone = one.try_clone().unwrap();
        assert_eq!(read(clone, Keep::XATTRS).unwrap(), wanted, "an owned descriptor stays open");
        assert!(read(&one, Keep::ACLS).unwrap().is_empty());
        assert!(differ(&other, &wanted, Keep::XATTRS, AttributeOrigin::Guest));
        put(&other, &wanted, Keep::XATTRS, AttributeOrigin::User).unwrap();
        assert_eq!(read(&other, Keep::XATTRS).unwrap(), wanted);
        assert!(!differ(&other, &wanted, Keep::XATTRS, AttributeOrigin::Guest));
        put(&other, &[], Keep::ACLS, AttributeOrigin::User).unwrap();
        assert_eq!(read(&other, Keep::XATTRS).unwrap(), wanted, "not asked for");
    }

    #[test]
    fn an_access_control_list_is_set_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let file = File::create(dir.path().join("one")).unwrap();
        // Version 2: the owner rw-, user 7 r--, the group r--, the mask r--, others ---.
        let mut list = vec![2, 0, 0, 0];
        for (tag, permission, id) in [
            (1_u16, 6_u16, u32::MAX),
            (2, 4, 7),
            (4, 4, u32::MAX),
            (16, 4, u32::MAX),
            (32, 0, u32::MAX),
        ] {
            list.extend(tag.to_le_bytes());
            list.extend(permission.to_le_bytes());
            list.extend(id.to_le_bytes());
        }
        let wanted = [Xattr { name: LISTS[0].to_vec(), value: list }];
        if put(&file, &wanted, Keep::ACLS, AttributeOrigin::Guest).is_err() {
            return eprintln!("SKIPPED: {} has no access control lists", dir.path().display());
        }
        assert_eq!(read(&file, Keep::ACLS).unwrap(), wanted);
        put(&file, &[], Keep::ACLS, AttributeOrigin::Guest).unwrap();
        assert!(read(&file, Keep::ACLS).unwrap().is_empty(), "and taken away");
    }
}
