//! Opens a landing: keeps existing items, creates those that need no data, and starts the threads.

use super::{
    super::Changes,
    Landing, Layout, Listed, OpenError, Options, Outlook, PassedOver,
    begun::{Begun, Opener},
    crew::{Crew, First},
    layout::Laid,
    lock::Lock,
    make::{self, Leftovers, Made},
    plan::Plan,
    shared::{Counts, Shared, tag},
    small,
    survey::{Fate, Survey, reference},
    tree::{Holds, Tree},
    work::{Beginning, Work},
};
use rustix::{
    fs::{Access, AtFlags, CWD, accessat},
    io::Errno,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    ops::Range,
    path::Path,
    sync::Arc,
};
use thalweg_base::space::Space;
use thalweg_files::inventory::{Inventory, MissingFile};

type Opened = Result<(Landing, Inventory), OpenError>;

/// See [`Landing::open`].
pub(super) fn open(into: &Path, listed: &[Listed], options: Options) -> Opened {
    let nodes: BTreeSet<_> = listed.iter().map(|of| &of.node).collect();
    let layout = options.layout.unwrap_or_else(|| Layout::of(nodes.len()));
    let mut laid = Laid::of(listed, layout).map_err(OpenError::Collisions)?;
    let (mut plan, left_out) = Plan::of(into.to_owned(), listed, &laid, options.fidelity);
    laid.failed.extend(left_out);
    if options.dry_run {
        return look(into, listed, plan, laid, options);
    }
    let (tree, was) = create(into)?;
    let locked = Lock::take(&tree, into, options.job.clone());
    let lock = locked.inspect_err(|_| tree.close(was))?;
    let passed_over = passed_over(&mut laid);
    let mut survey = survey(&plan, listed, Some(&tree), laid, &options);
    survey.opened.extend(was.map(|mode| (0, mode)));
    let space = Space::beside(tree.first());
    survey.make_room(&plan, space).inspect_err(|_| survey.undo(&plan, &tree))?;
    // A lack of inodes is only a warning here: files are stored until one does not fit, and a later session continues.
    let short_of_files = survey.check_files(&plan, space).err();
    let short_of_files = short_of_files.map(|e| format!("not all files will fit: {e}"));
    let remarks = short_of_files.into_iter().chain(survey.remarks()).collect();
    plan.opened(&survey.opened);
    let leftovers = Leftovers {
        tag: lock.was_cut_off.then(|| tag(&tree)),
        job: &lock.job,
        unsure: unsure(listed),
    };
    let made = make::make(plan, survey, &tree, &leftovers);
    begin(listed, Made { passed_over, ..made }, tree, lock, &options, remarks)
}

fn passed_over(laid: &mut Laid) -> Vec<PassedOver> {
    std::mem::take(&mut laid.passed_over).into_iter().collect()
}

/// Nodes that could not list everything.
fn unsure(listed: &[Listed]) -> BTreeSet<String> {
    let unsure = listed.iter().filter(|of| !of.failed.is_empty());
    unsure.map(|of| of.node.to_string()).collect()
}

fn survey(
    plan: &Plan,
    listed: &[Listed],
    tree: Option<&Tree>,
    laid: Laid,
    options: &Options,
) -> Survey {
    let mut survey = Survey::of(plan, listed, tree, options.sums.as_deref(), options.dry_run);
    survey.failed.extend(laid.failed);
    survey
}

/// Opens a landing that only reports.
fn look(into: &Path, listed: &[Listed], plan: Plan, mut laid: Laid, options: Options) -> Opened {
    let tree = find(into)?;
    let passed_over = passed_over(&mut laid);
    let space = check_ground(into, tree.as_ref())?;
    let mut survey = survey(&plan, listed, tree.as_ref(), laid, &options);
    survey.make_room(&plan, space)?;
    survey.check_files(&plan, space)?;
    let remarks = survey.remarks();
    let made = Made { passed_over, ..make::pretend(plan, survey) };
    let missing = made.fates.iter().zip(&made.plan.targets).map(|(fate, target)| match fate {
        Fate::GoOn { missing } => missing.clone(),
        _ => target.data(),
    });
    let missing: Vec<_> = missing.take(made.fetched).collect();
    let outlook = Outlook { remarks, ..outlook(&made, &missing) };
    let inventory = inventory(listed, &made.plan, missing);
    Ok((Landing::looking(outlook, options.job), inventory))
}

/// Starts the threads, and creates the items that need no data.
fn begin(
    listed: &[Listed],
    mut made: Made,
    tree: Tree,
    lock: Lock,
    options: &Options,
    remarks: Vec<String>,
) -> Opened {
    let stopped = made.stopped.take();
    let opener = Opener { plan: &made.plan, job: &lock.job, checkpoint: options.checkpoint };
    let mut begun = opener.go_on(&tree, &made.fates, made.fetched);
    let missing = std::mem::take(&mut begun.missing);
    let outlook = Outlook { resumed_bytes: begun.resumed, remarks, ..outlook(&made, &missing) };
    let counts = counts(&made.plan, &missing);
    let inventory = inventory(listed, &made.plan, missing);
    let Made { plan, fetched, present, changes, refused, .. } = made;
    let (job, into) = (lock.job.clone(), plan.into.clone());
    let shared = Arc::new(Shared::new(plan, tree, job, options.checkpoint, counts));
    stopped.into_iter().for_each(|error| shared.stop(error));
    let crew = start(&shared, begun, fetched).map_err(|source| {
        let what = "start a thread for";
        OpenError::Io { what, path: into, source }
    })?;
    let failed = outlook.failed.clone();
    let begun = Beginning { fetched, present, changes, refused, failed };
    let work = Work::new(shared, crew, lock, begun);
    Ok((Landing::working(outlook, work), inventory))
}

fn start(shared: &Arc<Shared>, begun: Begun, fetched: usize) -> io::Result<Crew> {
    let first = First::start(shared)?;
    begun.refused.into_iter().for_each(|(number, why)| shared.refuse(number, why));
    for (number, part, hold) in begun.whole {
        first.batches.add_large(number, part, hold);
    }
    let mut holds = Holds::of(&shared.tree);
    for (number, target) in (0..).zip(&shared.plan.targets).skip(fetched) {
        let hold = holds.get(&shared.plan, target.directory);
        let hold = hold.map_err(|e| shared.plan.trouble("open the directory of", e));
        match hold.and_then(|hold| small::make(shared, &hold, number, target)) {
            Ok(()) => first.batches.add_small(number, 0),
            Err(trouble) => shared.note(number, trouble),
        }
    }
    first.join(begun.parked)
}

/// The expected counts by source; all sources are included.
fn counts(plan: &Plan, missing: &[Vec<Range<u64>>]) -> BTreeMap<u32, Counts> {
    let mut counts: BTreeMap<u32, Counts> =
        plan.nodes.keys().map(|source| (*source, Counts::default())).collect();
    let made = std::iter::repeat(&[][..]);
    let missing = missing.iter().map(Vec::as_slice).chain(made);
    for (target, missing) in plan.targets.iter().zip(missing).filter(|(t, _)| t.is_file()) {
        counts.entry(target.source).or_default().expect(bytes(missing));
    }
    counts
}

fn bytes(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|range| range.end - range.start).sum()
}

fn outlook(made: &Made, missing: &[Vec<Range<u64>>]) -> Outlook {
    let wanted: u64 = missing.iter().map(|ranges| bytes(ranges)).sum();
    let whole: u64 = made.plan.targets.iter().take(made.fetched).map(|t| bytes(&t.data())).sum();
    let directories = made.plan.directories.iter().filter(|directory| directory.differs).count();
    let changes = Changes {
        links: made.plan.targets.iter().filter(|target| !target.is_file()).count() as u64,
        attributes: made.changes.attributes + directories as u64,
        ..made.changes
    };
    Outlook {
        changes,
        files: made.plan.targets.iter().filter(|target| target.is_file()).count() as u64,
        bytes: wanted,
        present_files: made.present.files,
        present_bytes: made.present.bytes,
        resumed_bytes: whole - wanted,
        failed: made.failed.clone(),
        remarks: Vec::new(),
        passed_over: made.passed_over.clone(),
    }
}

/// Checks whether a collection could start here, without creating anything. Returns the free space.
fn check_ground(into: &Path, tree: Option<&Tree>) -> Result<Space, OpenError> {
    let there = into.ancestors().map(|above| match above.as_os_str().is_empty() {
        true => Path::new("."),
        false => above,
    });
    let ground = there.into_iter().find(|above| above.exists()).unwrap_or(into);
    let refused = |source: Errno| {
        let what = if tree.is_some() { "write to" } else { "create" };
        OpenError::Io { what, path: into.to_owned(), source: source.into() }
    };
    if !ground.is_dir() {
        return Err(refused(Errno::NOTDIR));
    }
    let access = Access::WRITE_OK | Access::EXEC_OK;
    accessat(CWD, ground, access, AtFlags::EACCESS).map_err(refused)?;
    let space = Space::at(ground);
    if space.is_read_only {
        return Err(refused(Errno::ROFS));
    }
    tree.map_or(Ok(()), |tree| Lock::look(tree, into)).map(|()| space)
}

fn inventory(listed: &[Listed], plan: &Plan, missing: Vec<Vec<Range<u64>>>) -> Inventory {
    let wanted = missing.into_iter().zip(&plan.targets).filter_map(|(missing, target)| {
        Some(MissingFile { source: target.source, file: reference(listed, target)?, missing })
    });
    Inventory { files: wanted.collect() }
}

/// Opens the first directory with full owner rights, and creates it if it is missing.
fn create(into: &Path) -> Result<(Tree, Option<u16>), OpenError> {
    let refused = |what| {
        let path = into.to_owned();
        move |source| OpenError::Io { what, path, source }
    };
    if find(into)?.is_none() {
        std::fs::create_dir_all(into).map_err(refused("create"))?;
    }
    Tree::open_up(into).map_err(|e| refused("open")(e.into()))
}

/// Opens the first directory, if it exists.
fn find(into: &Path) -> Result<Option<Tree>, OpenError> {
    match Tree::open(into) {
        Ok(tree) => Ok(Some(tree)),
        Err(Errno::NOENT) => Ok(None),
        Err(Errno::NOTDIR) => Err(OpenError::NotADirectory(into.to_owned())),
        Err(e) => Err(OpenError::Io { what: "open", path: into.to_owned(), source: e.into() }),
    }
}
