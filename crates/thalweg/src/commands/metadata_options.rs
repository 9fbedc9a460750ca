//! The metadata options that `gather`, `send` and `cast` share.

use thalweg_part::Fidelity;

/// Which metadata is kept, besides modes and times.
#[derive(Clone, Copy, clap::Args)]
#[command(next_help_heading = "Metadata")]
pub struct MetadataOptions {
    /// Keep hard links: several names of one file stay one file
    #[arg(short = 'H', long)]
    hard_links: bool,

    /// Keep extended attributes in user.*; `gather` as root also keeps those of other namespaces
    #[arg(short = 'X', long)]
    xattrs: bool,

    /// Keep access control lists
    #[arg(short = 'A', long)]
    acls: bool,

    /// Keep the owners of files, matched by name. The receiving end must run as root; another host
    /// must also allow it in its settings. The default of `gather` as root, unless --no-owner is
    /// given
    #[arg(short = 'o', long, overrides_with = "no_owner")]
    owner: bool,

    #[arg(long, hide = true, overrides_with = "owner")]
    no_owner: bool,

    /// Keep the groups of files, under the same conditions as --owner
    #[arg(short = 'g', long, overrides_with = "no_group")]
    group: bool,

    #[arg(long, hide = true, overrides_with = "group")]
    no_group: bool,

    /// Keep the numeric ids of users and groups, also in access control lists, instead of matching
    /// names
    #[arg(long)]
    numeric_ids: bool,
}

impl MetadataOptions {
    /// Converts the options. `owners` says whether owners and groups are kept by default.
    pub fn fidelity(&self, owners: bool) -> Fidelity {
        let Self { hard_links, xattrs, acls, owner, no_owner, group, no_group, numeric_ids } =
            *self;
        let (owner, group) = (owner || owners && !no_owner, group || owners && !no_group);
        Fidelity { hard_links, xattrs, acls, owner, group, numeric_ids, set_id: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[derive(clap::Parser)]
    struct Call {
        #[command(flatten)]
        metadata: MetadataOptions,
    }

    #[test]
    fn owner_options_override_each_other_and_the_default() {
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
            let fidelity = call.metadata.fidelity(by_default);
            assert_eq!((fidelity.owner, fidelity.group), kept, "{flags:?}");
        }
        let all = Call::try_parse_from(["x", "-HAX", "-og", "--numeric-ids"]).unwrap();
        let (yes, fidelity) = (true, all.metadata.fidelity(false));
        let whole = Fidelity {
            hard_links: yes,
            xattrs: yes,
            acls: yes,
            owner: yes,
            group: yes,
            numeric_ids: yes,
            set_id: false,
        };
        assert_eq!(fidelity, whole);
    }
}
