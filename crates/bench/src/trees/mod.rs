//! Trees of files: creates one from a seed, and finds all differences between two.
//!
//! ```text
//!  seed ──► draw (pure) ──► make ──► disk ──► seen ──► compare (pure) ──► differences by class
//! ```
//!
//! Used by the experiment `trees` and by `thalweg-bench make-tree` and `thalweg-bench compare-trees`.

pub mod compare;
pub mod draw;
pub mod make;
pub mod snapshot;

use compare::{by_class, compare};
use draw::{AllowedEntries, draw};
use serde_json::json;
use std::{path::PathBuf, process::ExitCode};
use thalweg_console::say_line;

/// Arguments of `thalweg-bench make-tree`.
#[derive(clap::Args)]
pub struct MakeArgs {
    /// The directory to create; it must not exist
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// The seed; the same seed creates the same tree
    #[arg(long, value_name = "N")]
    seed: u64,
    /// Let some entries belong to other users; requires root
    #[arg(long)]
    owners: bool,
}

/// Creates a tree.
///
/// # Errors
/// When an entry cannot be created.
pub fn run_make(args: &MakeArgs) -> anyhow::Result<ExitCode> {
    make::make(&draw(args.seed, AllowedEntries { owners: args.owners }), &args.directory)?;
    Ok(ExitCode::SUCCESS)
}

const COMPARE_HELP: &str = "\
Compared are: kind, length and bytes, targets of links, permissions, set-ID and sticky bits, owners,
modification times to the nanosecond (also of directories and links), extended attributes, ACLs,
hard links, and whether holes are filled.

Exit codes: 0 the trees are equal; 1 one of them cannot be read; 2 they differ";

/// Arguments of `thalweg-bench compare-trees`.
#[derive(clap::Args)]
#[command(after_help = COMPARE_HELP)]
pub struct CompareArgs {
    /// The original
    #[arg(value_name = "A")]
    first: PathBuf,
    /// The copy
    #[arg(value_name = "B")]
    second: PathBuf,
    /// Print one JSON object instead of lines
    #[arg(long)]
    json: bool,
}

/// Compares two trees and prints the differences.
///
/// # Errors
/// When an entry cannot be read; entries that only their owner may read need root.
pub fn run_compare(args: &CompareArgs) -> anyhow::Result<ExitCode> {
    let found = compare(&snapshot::read_tree(&args.first)?, &snapshot::read_tree(&args.second)?);
    if args.json {
        let classes: serde_json::Map<_, _> = by_class(&found)
            .into_iter()
            .map(|(class, n)| (class.name().into(), n.into()))
            .collect();
        let all: Vec<_> = found.iter().map(compare::Difference::json).collect();
        say_line(json!({ "classes": classes, "differences": all }).to_string())?;
    } else {
        for difference in &found {
            let [first, second] = &difference.values;
            let path = difference.path.escape_ascii();
            say_line(format!("{}\t{path}\t{first}\t{second}", difference.class.name()))?;
        }
    }
    Ok(if found.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(2) })
}

#[cfg(test)]
mod tests {
    use super::{compare::DifferenceClass, *};
    use rustix::{
        fs::{XattrFlags, lsetxattr},
        process::geteuid,
    };
    use std::{collections::BTreeSet, fs, os::unix::fs::PermissionsExt as _};

    fn allowed() -> AllowedEntries {
        AllowedEntries { owners: geteuid().is_root() }
    }

    /// Only root can read all entries of such a tree.
    fn is_root() -> bool {
        let is_root = geteuid().is_root();
        if !is_root {
            thalweg_console::note!("skipped: only root can look at every entry of a tree");
        }
        is_root
    }

    #[test]
    fn trees_of_one_seed_are_equal_and_trees_of_two_seeds_differ() {
        if !is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        for seed in [1, 2, 3, 77] {
            let tree = draw(seed, allowed());
            let places = ["a", "b"].map(|name| dir.path().join(format!("{seed}{name}")));
            places.iter().for_each(|place| make::make(&tree, place).unwrap());
            let [a, b] = places.each_ref().map(|place| snapshot::read_tree(place).unwrap());
            // Absolute links into the tree contain the tree's own path.
            let found: Vec<_> =
                compare(&a, &b).into_iter().filter(|d| d.class != DifferenceClass::Link).collect();
            assert_eq!(found, [], "seed {seed}");
            assert_eq!(a.len(), tree.entries.len(), "seed {seed}");
        }
        let [a, b] = ["1a", "2a"].map(|name| snapshot::read_tree(&dir.path().join(name)).unwrap());
        assert!(!compare(&a, &b).is_empty());
    }

    #[test]
    fn changes_on_the_disk_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let places = ["a", "b"].map(|name| dir.path().join(name));
        let [a, b] = &places;
        for place in &places {
            fs::create_dir(place).unwrap();
            let sparse = fs::File::create(place.join("sparse")).unwrap();
            sparse.set_len(1 << 20).unwrap();
            fs::write(place.join("f"), "one").unwrap();
        }
        fs::write(b.join("sparse"), vec![0; 1 << 20]).unwrap();
        fs::set_permissions(b.join("f"), fs::Permissions::from_mode(0o600)).unwrap();
        fs::hard_link(b.join("f"), b.join("g")).unwrap();
        fs::hard_link(a.join("f"), a.join("h")).unwrap();
        fs::hard_link(a.join("f"), a.join("g")).unwrap();
        fs::copy(b.join("f"), b.join("h")).unwrap();
        let later = std::time::SystemTime::now() + std::time::Duration::from_secs(1);
        fs::File::open(b).unwrap().set_modified(later).unwrap();
        // If the file system has no attributes, the class cannot occur.
        let has = lsetxattr(b.join("f"), "user.x", b"1", XattrFlags::empty()).is_ok();
        let found = compare(&snapshot::read_tree(a).unwrap(), &snapshot::read_tree(b).unwrap());
        let classes: BTreeSet<DifferenceClass> =
            found.iter().map(|difference| difference.class).collect();
        for class in [
            DifferenceClass::Holes,
            DifferenceClass::Mode,
            DifferenceClass::HardLinks,
            DifferenceClass::Time,
            DifferenceClass::DirectoryTime,
        ] {
            assert!(classes.contains(&class), "{class:?} in {found:?}");
        }
        assert_eq!(classes.contains(&DifferenceClass::Xattr), has);
        assert!(!classes.contains(&DifferenceClass::Content));
    }
}
