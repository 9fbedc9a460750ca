//! What `gather`, `send` and `cast` keep of files, by the same options.

use rustix::process::geteuid;
use thalweg_wire::object::Keep;

/// What is kept beside content, modes, times and symbolic links, which always are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fidelity {
    /// Names of one file are names of one file there.
    pub hard_links: bool,
    /// Extended attributes.
    pub xattrs: bool,
    /// Access control lists.
    pub acls: bool,
    /// Users that files belong to.
    pub owner: bool,
    /// Their groups.
    pub group: bool,
    /// Users and groups keep their numbers, whatever they are called at the receiving end.
    pub numeric_ids: bool,
}

impl Fidelity {
    /// What those who have the files are asked to tell; `gives_away`: whether files can be given to others at the
    /// receiving end. Names of owners are only of use where owners are.
    pub fn asked(self, gives_away: bool) -> Keep {
        let owners = gives_away && (self.owner || self.group);
        let names = (owners || self.acls) && !self.numeric_ids;
        Keep::HOLES.and(Keep::NAMES.only_if(names)).and(self.attributes())
    }

    /// Of them what [`crate::xattr`] deals with.
    pub fn attributes(self) -> Keep {
        Keep::XATTRS.only_if(self.xattrs).and(Keep::ACLS.only_if(self.acls))
    }
}

/// Whether this process can give files to others: root alone can.
pub fn gives_away() -> bool {
    geteuid().is_root()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_asked_for_where_they_are_of_use() {
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
            let asked = fidelity.asked(gives_away);
            assert_eq!(asked.has(Keep::NAMES), names, "{fidelity:?}");
            assert!(asked.has(Keep::HOLES));
        }
    }
}
