//! What `gather`, `send` and `cast` keep of files: the same options, by the same rule.

use thalweg_part::Fidelity;

/// What is kept of files beside content, modes, times and symbolic links.
#[derive(Clone, Copy, clap::Args)]
#[command(next_help_heading = "What is kept")]
pub struct KeepArgs {
    /// Keep several names of one file as that (hard links)
    #[arg(short = 'H', long)]
    hard_links: bool,

    /// Keep extended attributes of user.*; `gather` as root also others
    #[arg(short = 'X', long)]
    xattrs: bool,

    /// Keep access control lists
    #[arg(short = 'A', long)]
    acls: bool,

    /// Keep the users that files belong to, by name: if the receiving end is root and, in another
    /// host's inbox, its settings allow it. `gather` as root does so unless --no-owner is given
    #[arg(short = 'o', long, overrides_with = "no_owner")]
    owner: bool,

    #[arg(long, hide = true, overrides_with = "owner")]
    no_owner: bool,

    /// Keep the groups of files, as --owner does the users
    #[arg(short = 'g', long, overrides_with = "no_group")]
    group: bool,

    #[arg(long, hide = true, overrides_with = "group")]
    no_group: bool,

    /// Keep users and groups, also those in access control lists, by number instead of by name
    #[arg(long)]
    numeric_ids: bool,
}

impl KeepArgs {
    /// The same for what carries it out; `owners`: whether owners are kept if nothing is said of them.
    pub fn fidelity(&self, owners: bool) -> Fidelity {
        let Self { hard_links, xattrs, acls, owner, no_owner, group, no_group, numeric_ids } =
            *self;
        let (owner, group) = (owner || owners && !no_owner, group || owners && !no_group);
        Fidelity { hard_links, xattrs, acls, owner, group, numeric_ids }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[derive(clap::Parser)]
    struct Call {
        #[command(flatten)]
        keep: KeepArgs,
    }

    #[test]
    fn owners_are_kept_as_rsync_has_it() {
        for (flags, by_default, kept) in [
            (&[][..], true, (true, true)),
            (&[], false, (false, false)),
            (&["--no-owner"], true, (false, true)),
            (&["--no-owner", "--no-group"], true, (false, false)),
            (&["--no-group", "-g"], true, (true, true)),
            (&["-o", "--no-owner"], false, (false, false)),
            (&["-o"], false, (true, false)),
            (&["-og"], false, (true, true)),
            (&["--owner", "--group", "--numeric-ids"], false, (true, true)),
        ] {
            let call = Call::try_parse_from([&["x"], flags].concat()).unwrap();
            let fidelity = call.keep.fidelity(by_default);
            assert_eq!((fidelity.owner, fidelity.group), kept, "{flags:?}");
        }
        let all = Call::try_parse_from(["x", "-HAX", "-og", "--numeric-ids"]).unwrap();
        let (yes, fidelity) = (true, all.keep.fidelity(false));
        let whole = Fidelity {
            hard_links: yes,
            xattrs: yes,
            acls: yes,
            owner: yes,
            group: yes,
            numeric_ids: yes,
        };
        assert_eq!(fidelity, whole);
    }
}
