//! Copies trees of many seeds with the product and with rsync, for the experiment `trees`, and reports how the copies
//! differ from the original.
//!
//! ```text
//!  seed ──► tree ──┬─► rsync -aHAX ──────► differences of rsync ──┐
//!                  └─► gather|send|cast ─► differences of ours ───┴─► ours that are neither rsync's nor intended
//! altered tree: copied again over the first copies
//! ```

use super::report::Report;
use crate::{
    program,
    trees::{
        compare::{Difference, DifferenceClass, compare},
        draw::{AllowedEntries, draw},
        make::make,
        snapshot::read_tree,
    },
};
use anyhow::{Context as _, bail, ensure};
use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fs,
    io::Write as _,
    os::unix::{ffi::OsStrExt as _, fs::PermissionsExt as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};
use thalweg_console::note;

/// The most differences of one tree that are printed; the rest is counted.
const SHOWN: usize = 8;

/// Arguments of `thalweg-bench load trees`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The program that copies
    #[arg(long, value_enum)]
    how: CopyProgram,
    /// Number of the round; each round uses the next --count seeds, beginning with 1
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    round: u64,
    /// The number of seeds in a round
    #[arg(long, value_name = "N", default_value_t = 200)]
    count: u64,
    /// Working directory, visible to both hosts; it is created
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Directory in which the other host accepts files: `accept` for `send`, `inbox` for `cast`
    #[arg(long, value_name = "DIR")]
    inbox: Option<PathBuf>,
    /// The other host
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
    /// This host's state directory
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Classes of differences that are allowed
    #[arg(long, value_name = "CLASS,…", value_delimiter = ',')]
    intended: Vec<String>,
    /// Let some entries belong to other users
    #[arg(long)]
    owners: bool,
    /// Keep the trees that differ
    #[arg(long)]
    keep: bool,
    /// Alter the tree after the first copy, and copy again
    #[arg(long)]
    again: bool,
    /// Flags that let the second copy remove and replace files, as `rsync --delete` does
    #[arg(long, value_name = "FLAG,…", value_delimiter = ',', allow_hyphen_values = true)]
    delete_by: Vec<String>,
    /// Further arguments of the command
    #[arg(last = true)]
    further: Vec<String>,
}

/// The program that copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum CopyProgram {
    /// rsync -aHAX alone
    Rsync,
    /// `thalweg gather`, from the other host
    Gather,
    /// `thalweg send`, to the other host
    Send,
    /// `thalweg cast`, to the other host
    Cast,
}

/// Sums over all trees.
#[derive(Debug, Default)]
struct CopySums {
    trees: u64,
    entries: u64,
    failed: u64,
    beyond: u64,
    own: BTreeMap<DifferenceClass, u64>,
    rsync: BTreeMap<DifferenceClass, u64>,
    took: Duration,
    rsync_took: Duration,
}

/// Copies, compares, and prints the report.
///
/// # Errors
/// When a tree cannot be created or read, or rsync fails; a failure of the product is counted.
pub fn run(args: &Args) -> anyhow::Result<()> {
    fs::create_dir_all(&args.dir)
        .with_context(|| format!("cannot create {}", args.dir.display()))?;
    let mut sums = CopySums::default();
    let first = (args.round - 1) * args.count + 1;
    for seed in first..first + args.count {
        run_tree(args, seed, &mut sums)
            .with_context(|| format!("cannot test the tree of seed {seed}"))?;
    }
    let mut report = Report::default();
    sums.report(&mut report, args.how);
    report.print().context("cannot print the report")
}

/// Copies and compares one tree.
fn run_tree(args: &Args, seed: u64, sums: &mut CopySums) -> anyhow::Result<()> {
    let place = args.dir.join(seed.to_string());
    fs::create_dir(&place)?;
    let name = format!("tree-{seed}");
    let source = place.join(&name);
    make(&draw(seed, AllowedEntries { owners: args.owners }), &source)?;
    let original = read_tree(&source)?;
    sums.trees += 1;
    sums.entries += original.len() as u64;

    let by_rsync = place.join("rsync");
    let mut copy = by_rsync.join(&name);
    let mut kept = false;
    for second in [false, true].into_iter().take(if args.again { 2 } else { 1 }) {
        let further = if second { &args.delete_by[..] } else { &[] };
        if second {
            alter(&source, !further.is_empty())?;
        }
        let original = read_tree(&source)?;
        sums.rsync_took += run_rsync(&source, &by_rsync, !further.is_empty())?;
        let of_rsync = compare(&original, &read_tree(&by_rsync.join(&name))?);
        of_rsync
            .iter()
            .for_each(|difference| *sums.rsync.entry(difference.class).or_default() += 1);
        if args.how == CopyProgram::Rsync {
            continue;
        }
        let code;
        (copy, code) = run_product(args, &source, &place, further, sums)?;
        if code != 0 {
            sums.failed += 1;
            note!(
                "seed {seed}: exit code {code}{}",
                if second { " of the second copy" } else { "" }
            );
        }
        let own = match copy.symlink_metadata() {
            Ok(_) => compare(&original, &read_tree(&copy)?),
            Err(_) => compare(&original, &BTreeMap::new()),
        };
        let beyond = sums.judge(args, &of_rsync, &own);
        print_differences(seed, &beyond);
        kept |= args.keep && !beyond.is_empty();
    }
    if !kept {
        if !copy.starts_with(&place) && copy.symlink_metadata().is_ok() {
            remove_tree(&copy)?;
        }
        remove_tree(&place)?;
    }
    Ok(())
}

/// Alters a tree: every fifth file grows, every seventh gets another mode, and with `removes` every eleventh is
/// removed.
fn alter(source: &Path, removes: bool) -> anyhow::Result<()> {
    let files = read_tree(source)?.into_keys().map(|path| source.join(OsStr::from_bytes(&path)));
    let is_file = |path: &PathBuf| path.symlink_metadata().is_ok_and(|about| about.is_file());
    for (place, file) in files.filter(is_file).enumerate() {
        match place {
            _ if removes && place % 11 == 0 => fs::remove_file(&file)?,
            _ if place % 7 == 0 => {
                fs::set_permissions(&file, fs::Permissions::from_mode(0o640))?;
            }
            _ if place % 5 == 0 => {
                fs::OpenOptions::new().append(true).open(&file)?.write_all(b"more")?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn print_differences(seed: u64, beyond: &[&Difference]) {
    for difference in beyond.iter().take(SHOWN) {
        let [first, second] = difference.values.each_ref().map(|value| shorten(value));
        let path = shorten(&difference.path.escape_ascii().to_string());
        note!("seed {seed}: {}: {path}: {first} -> {second}", difference.class.name());
    }
    if beyond.len() > SHOWN {
        note!("seed {seed}: {} further differences", beyond.len() - SHOWN);
    }
}

fn shorten(text: &str) -> String {
    if text.chars().count() <= 60 {
        text.to_owned()
    } else {
        text.chars().take(57).chain("...".chars()).collect()
    }
}

fn run_rsync(source: &Path, into: &Path, deletes: bool) -> anyhow::Result<Duration> {
    let since = Instant::now();
    let status = Command::new("rsync")
        .args(["-aHAX", "--numeric-ids"])
        .args(deletes.then_some("--delete"))
        .args([source, into])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .context("cannot start rsync")?;
    ensure!(status.success(), "rsync ended with {status}");
    Ok(since.elapsed())
}

/// Copies with the product; returns the path of the copy and the exit code.
fn run_product(
    args: &Args,
    source: &Path,
    place: &Path,
    further: &[String],
    sums: &mut CopySums,
) -> anyhow::Result<(PathBuf, i32)> {
    let node = args.node.as_deref().context("--node is needed")?;
    let name = source.file_name().context("the tree's path has no file name")?;
    let inbox = || args.inbox.clone().context("--inbox is needed");
    let mut command = Command::new(program::product()?);
    let copy = match args.how {
        CopyProgram::Gather => {
            let into = place.join("gathered");
            command
                .args(["gather", "--quiet", "--set-id"])
                .args([&format!("{node}:{}", source.display()), "--into"])
                .arg(&into);
            into.join(name)
        }
        CopyProgram::Send => {
            let inbox = inbox()?;
            command
                .args(["send", "--quiet"])
                .arg(source)
                .arg(format!("{node}:{}", inbox.display()));
            inbox.join(name)
        }
        CopyProgram::Cast => {
            command.args(["cast", "--quiet"]).arg(source).args(["--to", node]);
            inbox()?.join(name)
        }
        CopyProgram::Rsync => bail!("rsync alone makes no copy with the product"),
    };
    command.args(further).args(&args.further);
    if let Some(state) = &args.state {
        command.env("THALWEG_STATE", state);
    }
    let since = Instant::now();
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status();
    sums.took += since.elapsed();
    Ok((copy, status.context("cannot start thalweg")?.code().unwrap_or(-1)))
}

impl CopySums {
    /// Counts the differences; returns those that rsync's copy does not have and that are not intended.
    fn judge<'a>(
        &mut self,
        args: &Args,
        of_rsync: &[Difference],
        own: &'a [Difference],
    ) -> Vec<&'a Difference> {
        own.iter().for_each(|difference| *self.own.entry(difference.class).or_default() += 1);
        // Only equal values are excused: a time that rsync misses by a nanosecond does not excuse a time that we miss
        // by years.
        let with_rsync: BTreeSet<_> =
            of_rsync.iter().map(|d| (&d.path, d.class, &d.values)).collect();
        let is_beyond = |difference: &&Difference| {
            !with_rsync.contains(&(&difference.path, difference.class, &difference.values))
                && !args.intended.iter().any(|class| class == difference.class.name())
        };
        let beyond: Vec<_> = own.iter().filter(is_beyond).collect();
        self.beyond += beyond.len() as u64;
        beyond
    }

    fn report(&self, report: &mut Report, how: CopyProgram) {
        report.add("trees", "1", self.trees as f64);
        report.add("entries", "1", self.entries as f64);
        let (own, took) = match how {
            CopyProgram::Rsync => (&self.rsync, self.rsync_took),
            _ => (&self.own, self.took),
        };
        report.add("failed", "1", self.failed as f64);
        report.add("differences", "1", own.values().sum::<u64>() as f64);
        report.add("beyond_rsync", "1", self.beyond as f64);
        report.add("seconds", "s", took.as_secs_f64());
        // Reported even if it is zero, because a check needs the value.
        let holes = own.get(&DifferenceClass::Holes).copied().unwrap_or_default();
        report.add("differs_holes", "1", holes as f64);
        for (class, n) in own {
            report.add(format!("differs_{}", class.name()), "1", *n as f64);
        }
    }
}

/// Removes a tree that may contain directories without permissions.
fn remove_tree(place: &Path) -> anyhow::Result<()> {
    let about = fs::symlink_metadata(place)?;
    if about.is_dir() {
        fs::set_permissions(place, fs::Permissions::from_mode(0o700))?;
        for entry in fs::read_dir(place)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                remove_tree(&entry.path())?;
            }
        }
    }
    fs::remove_dir_all(place).with_context(|| format!("cannot remove {}", place.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(intended: &[&str]) -> Args {
        Args {
            how: CopyProgram::Gather,
            round: 1,
            count: 1,
            dir: PathBuf::new(),
            inbox: None,
            node: None,
            state: None,
            intended: intended.iter().map(|class| (*class).to_owned()).collect(),
            owners: false,
            keep: false,
            again: false,
            delete_by: vec![],
            further: vec![],
        }
    }

    #[test]
    fn a_difference_with_another_value_than_that_of_rsync_counts() {
        let of_rsync = difference("a", DifferenceClass::Time);
        let own = Difference { values: [String::new(), "1901".into()], ..of_rsync.clone() };
        let mut sums = CopySums::default();
        assert_eq!(sums.judge(&args(&[]), &[of_rsync], &[own]).len(), 1);
    }

    fn difference(path: &str, class: DifferenceClass) -> Difference {
        Difference { path: path.into(), class, values: Default::default() }
    }

    #[test]
    fn differences_of_rsync_and_intended_ones_do_not_count() {
        let own = [
            difference("a", DifferenceClass::Mode),
            difference("a", DifferenceClass::Time),
            difference("b", DifferenceClass::MissingSpecial),
        ];
        let of_rsync =
            [difference("a", DifferenceClass::Time), difference("c", DifferenceClass::Mode)];
        let mut sums = CopySums::default();
        let beyond = sums.judge(&args(&["missing-special"]), &of_rsync, &own);
        assert_eq!(beyond, [&own[0]]);
        assert_eq!(sums.judge(&args(&[]), &[], &own).len(), 3);
        assert_eq!(sums.beyond, 4);
        assert_eq!(sums.own[&DifferenceClass::Mode], 2);
    }

    #[test]
    fn a_tree_with_directories_without_permissions_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("a");
        fs::create_dir_all(place.join("b/c")).unwrap();
        fs::write(place.join("b/c/d"), "x").unwrap();
        for shut in ["b/c", "b"] {
            fs::set_permissions(place.join(shut), fs::Permissions::from_mode(0o000)).unwrap();
        }
        remove_tree(&place).unwrap();
        assert!(!place.exists());
    }
}
