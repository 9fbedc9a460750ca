//! Opens a landing: keeps existing items, creates those that need no data, and starts the threads.

use super::{
    super::Changes,
    Landing, Layout, Listing, OpenError, Options, PassedOver, RequiredWork,
    execution::{InitialState, LandingWork},
    layout::NamedItems,
    lock::LandingLock,
    plan::TreePlan,
    preparation::{self, Leftovers, PreparedTarget},
    resumed_parts::{Opener, ResumedData},
    small,
    state::{Counts, LandingState, tag},
    survey::{Survey, TargetAction, reference},
    threads::{LandingThreads, SyncThread},
    tree::{DirectoryCache, Tree},
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

type OpenResult = Result<(Landing, Inventory), OpenError>;

/// See [`Landing::open`].
pub(super) fn open(into: &Path, listed: &[Listing], options: Options) -> OpenResult {
    let nodes: BTreeSet<_> = listed.iter().map(|of| &of.node).collect();
    let layout = options.layout.unwrap_or_else(|| Layout::of(nodes.len()));
    let mut items = NamedItems::assign_names(listed, layout).map_err(OpenError::Collisions)?;
    let (mut plan, left_out) = TreePlan::build(into.to_owned(), listed, &items, options.fidelity);
    items.failed.extend(left_out);
    if options.dry_run {
        return look(into, listed, plan, items, options);
    }
    let (tree, was) = create(into)?;
    let locked = LandingLock::take(&tree, into, options.job.clone());
    let lock = locked.inspect_err(|_| tree.close(was))?;
    let passed_over = passed_over(&mut items);
    let mut survey = survey(&plan, listed, Some(&tree), items, &options);
    survey.opened.extend(was.map(|mode| (0, mode)));
    let space = Space::of_file(tree.first());
    survey.make_room(&plan, space).inspect_err(|_| survey.undo(&plan, &tree))?;
    // A lack of inodes is only a warning here: files are stored until one does not fit, and a later session continues.
    let short_of_files = survey.check_files(&plan, space).err();
    let short_of_files = short_of_files.map(|e| format!("not all files will fit: {e}"));
    let remarks = short_of_files.into_iter().chain(survey.remarks()).collect();
    plan.record_opened(&survey.opened);
    let leftovers = Leftovers {
        tag: lock.was_cut_off.then(|| tag(&tree)),
        job: &lock.job,
        unsure: unsure(listed),
    };
    let made = preparation::make(plan, survey, &tree, &leftovers);
    begin(listed, PreparedTarget { passed_over, ..made }, tree, lock, &options, remarks)
}

fn passed_over(items: &mut NamedItems) -> Vec<PassedOver> {
    std::mem::take(&mut items.passed_over).into_iter().collect()
}

/// Nodes that could not list everything.
fn unsure(listed: &[Listing]) -> BTreeSet<String> {
    let unsure = listed.iter().filter(|of| !of.failed.is_empty());
    unsure.map(|of| of.node.to_string()).collect()
}

fn survey(
    plan: &TreePlan,
    listed: &[Listing],
    tree: Option<&Tree>,
    items: NamedItems,
    options: &Options,
) -> Survey {
    let mut survey = Survey::compare(plan, listed, tree, options.sums.as_deref(), options.dry_run);
    survey.failed.extend(items.failed);
    survey
}

/// Opens a landing that only reports.
fn look(
    into: &Path,
    listed: &[Listing],
    plan: TreePlan,
    mut items: NamedItems,
    options: Options,
) -> OpenResult {
    let tree = find(into)?;
    let passed_over = passed_over(&mut items);
    let space = check_ground(into, tree.as_ref())?;
    let mut survey = survey(&plan, listed, tree.as_ref(), items, &options);
    survey.make_room(&plan, space)?;
    survey.check_files(&plan, space)?;
    let remarks = survey.remarks();
    let made = PreparedTarget { passed_over, ..preparation::pretend(plan, survey) };
    let missing =
        made.actions.iter().zip(&made.plan.targets).map(|(action, target)| match action {
            TargetAction::Resume { missing } => missing.clone(),
            _ => target.data(),
        });
    let missing: Vec<_> = missing.take(made.fetched).collect();
    let required_work = RequiredWork { remarks, ..required_work(&made, &missing) };
    let inventory = inventory(listed, &made.plan, missing);
    Ok((Landing::for_dry_run(required_work, options.job), inventory))
}

/// Starts the threads, and creates the items that need no data.
fn begin(
    listed: &[Listing],
    mut made: PreparedTarget,
    tree: Tree,
    lock: LandingLock,
    options: &Options,
    remarks: Vec<String>,
) -> OpenResult {
    let stopped = made.stopped.take();
    let opener = Opener { plan: &made.plan, job: &lock.job, checkpoint: options.checkpoint };
    let mut begun = opener.resume(&tree, &made.actions, made.fetched);
    let missing = std::mem::take(&mut begun.missing);
    let required_work =
        RequiredWork { resumed_bytes: begun.resumed, remarks, ..required_work(&made, &missing) };
    let counts = counts(&made.plan, &missing);
    let inventory = inventory(listed, &made.plan, missing);
    let PreparedTarget { plan, fetched, present, changes, refused, .. } = made;
    let (job, into) = (lock.job.clone(), plan.into.clone());
    let shared = Arc::new(LandingState::new(plan, tree, job, options.checkpoint, counts));
    stopped.into_iter().for_each(|error| shared.stop(error));
    let threads = start(&shared, begun, fetched).map_err(|source| {
        let what = "start a thread for";
        OpenError::Io { what, path: into, source }
    })?;
    let failed = required_work.failed.clone();
    let begun = InitialState { fetched, present, changes, refused, failed };
    let work = LandingWork::new(shared, threads, lock, begun);
    Ok((Landing::with_work(required_work, work), inventory))
}

fn start(
    shared: &Arc<LandingState>,
    begun: ResumedData,
    fetched: usize,
) -> io::Result<LandingThreads> {
    let first = SyncThread::start(shared)?;
    begun.refused.into_iter().for_each(|(number, why)| shared.refuse(number, why));
    for (number, part, hold) in begun.whole {
        first.batches.add_large(number, part, hold);
    }
    let mut holds = DirectoryCache::new(&shared.tree);
    for (number, target) in (0..).zip(&shared.plan.targets).skip(fetched) {
        let hold = holds.get(&shared.plan, target.directory);
        let hold = hold.map_err(|e| shared.plan.classify_error("open the directory of", e));
        match hold.and_then(|hold| small::make(shared, &hold, number, target)) {
            Ok(()) => first.batches.add_small(number, 0),
            Err(error) => shared.record_error(number, error),
        }
    }
    first.join(begun.parked)
}

/// The expected counts by source; all sources are included.
fn counts(plan: &TreePlan, missing: &[Vec<Range<u64>>]) -> BTreeMap<u32, Counts> {
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

fn required_work(made: &PreparedTarget, missing: &[Vec<Range<u64>>]) -> RequiredWork {
    let wanted: u64 = missing.iter().map(|ranges| bytes(ranges)).sum();
    let whole: u64 = made.plan.targets.iter().take(made.fetched).map(|t| bytes(&t.data())).sum();
    let directories = made.plan.directories.iter().filter(|directory| directory.differs).count();
    let changes = Changes {
        links: made.plan.targets.iter().filter(|target| !target.is_file()).count() as u64,
        attributes: made.changes.attributes + directories as u64,
        ..made.changes
    };
    RequiredWork {
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
    tree.map_or(Ok(()), |tree| LandingLock::check(tree, into)).map(|()| space)
}

fn inventory(listed: &[Listing], plan: &TreePlan, missing: Vec<Vec<Range<u64>>>) -> Inventory {
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
