//! The metadata options that `gather`, `send` and `cast` share.

use rustix::process::geteuid;
use thalweg_wire::object::Keep;

/// Which metadata is kept. Content, modes, times and symbolic links always are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fidelity {
    pub hard_links: bool,
    /// Extended attributes.
    pub xattrs: bool,
    /// Access control lists.
    pub acls: bool,
    pub owner: bool,
    pub group: bool,
    /// Users and groups keep their numeric ids instead of being matched by name.
    pub numeric_ids: bool,
    /// Set-user and set-group bits and capabilities of files, which run a program with another user's rights.
    pub set_id: bool,
}

impl Fidelity {
    /// The optional fields to request from the source. `gives_away` says whether the receiving end may be able to
    /// change owners: otherwise the names of owners are not needed.
    pub fn requested_fields(self, gives_away: bool) -> Keep {
        let owners = gives_away && (self.owner || self.group);
        let names = (owners || self.acls) && !self.numeric_ids;
        Keep::HOLES.and(Keep::NAMES.only_if(names)).and(self.attributes())
    }

    /// The kinds of extended attributes to keep, for [`crate::xattr`].
    pub fn attributes(self) -> Keep {
        Keep::XATTRS.only_if(self.xattrs).and(Keep::ACLS.only_if(self.acls))
    }
}

/// Whether this process can change the owner of files: only root can.
pub fn gives_away() -> bool {
    geteuid().is_root()
}

/// A note about files and directories that lose set-user-ID, set-group-ID or sticky bits; `None` if `count` is 0.
pub fn special_bits_note(count: u64) -> Option<String> {
    let what = match count {
        0 => return None,
        1 => "1 file or directory".to_owned(),
        n => format!("{n} files and directories"),
    };
    let why = "files from another host do not get these rights";
    Some(format!("set-user-ID, set-group-ID and sticky bits of {what} are not kept: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_requested_only_if_they_are_needed() {
        let none = Fidelity::default();
        let owner = Fidelity { owner: true, ..none };
        let acls = Fidelity { acls: true, ..none };
        for (fidelity, gives_away, names) in [
            (none, true, false),
            (owner, true, true),
            (owner, false, false),
            (acls, false, true),
            (Fidelity { numeric_ids: true, ..acls }, true, false),
        ] {
            let asked = fidelity.requested_fields(gives_away);
            assert_eq!(asked.has(Keep::NAMES), names, "{fidelity:?}");
            assert!(asked.has(Keep::HOLES));
        }
    }
}
