//! Further names of files: linked once the file has its first name.

use super::{
    FailedItem,
    plan::{Content, Target, TreePlan, temporary},
    state::{LandingState, TargetState},
    step_error::error_text,
    survey::TargetAction,
    tree::{DirectoryCache, remove_directory},
};
use rustix::io::Errno;
use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
};
use thalweg_part::hard_link::{self, EntryName};

/// A name of a file: the plan's directory, and the name in it.
pub(super) type FirstName = (u32, OsString);

/// A further name of a file of a plan.
#[derive(Debug)]
pub(super) struct HardLink {
    pub(super) source: u32,
    pub(super) directory: u32,
    pub(super) name: OsString,
    /// The first name, which is that of a target.
    pub(super) first: FirstName,
}

/// The first name of each file, by source, device and inode.
#[derive(Debug, Default)]
pub(super) struct HardLinks(BTreeMap<(u32, u64, u64), FirstName>);

impl HardLinks {
    /// Returns the first name of the target's file; `None` if this target is the first.
    pub(super) fn first_of(&mut self, target: &Target) -> Option<FirstName> {
        let Content::File(snapshot) = &target.content else { return None };
        let key = (target.source, snapshot.device, snapshot.inode);
        if let Some(first) = self.0.get(&key) {
            return Some(first.clone());
        }
        self.0.insert(key, (target.directory, target.name.clone()));
        None
    }
}

/// The result of linking.
#[derive(Debug, Default)]
pub(super) struct LinkResult {
    pub(super) made: u64,
    pub(super) present: u64,
    pub(super) failed: Vec<FailedItem>,
}

/// Creates all links whose first name is in place; `refused` are first names that will be missing.
pub(super) fn make(
    shared: &LandingState,
    holds: &mut DirectoryCache,
    refused: &BTreeSet<FirstName>,
) -> LinkResult {
    let plan = &shared.plan;
    let mut linked = LinkResult::default();
    if plan.links.is_empty() {
        return linked;
    }
    let waiting =
        (0..).zip(&plan.targets).filter(|(number, _)| shared.state(*number) != TargetState::Named);
    let mut absent: BTreeSet<FirstName> =
        waiting.map(|(_, target)| (target.directory, target.name.clone())).collect();
    absent.extend(refused.iter().cloned());
    for (number, link) in (plan.targets.len() as u32..).zip(&plan.links) {
        let done = match absent.contains(&link.first) {
            true => Err("the file that it is a hard link to was not received".to_owned()),
            false => one(shared, holds, number, link).map_err(|e| error_text("link", e)),
        };
        match done {
            Ok(true) => linked.made += 1,
            Ok(false) => linked.present += 1,
            Err(why) => {
                let path = plan.below(link.directory).join(&link.name);
                linked.failed.push(FailedItem { source: link.source, path, why });
            }
        }
    }
    linked
}

/// Creates a hard link. Returns false if it exists already.
fn one(
    shared: &LandingState,
    holds: &mut DirectoryCache,
    number: u32,
    link: &HardLink,
) -> Result<bool, Errno> {
    let (plan, (directory, first)) = (&shared.plan, &link.first);
    let (from, to) = (holds.get(plan, *directory)?, holds.get(plan, link.directory)?);
    let first = || EntryName { directory: &*from, name: first };
    let file = first().stat()?.ok_or(Errno::NOENT)?;
    let temporary = temporary(shared.tag, number);
    let put = || {
        let name = EntryName { directory: &*to, name: &link.name };
        hard_link::create(first(), &file, name, &temporary)
    };
    match put() {
        Err(Errno::ISDIR) => {
            remove_directory(&to, &link.name)?;
            put()
        }
        done => done,
    }
}

impl TreePlan {
    /// First names of files that have further names and will be missing.
    pub(super) fn refused(&self, actions: &[TargetAction]) -> BTreeSet<FirstName> {
        let first: BTreeSet<&FirstName> = self.links.iter().map(|link| &link.first).collect();
        let refused = actions.iter().zip(&self.targets);
        let refused = refused.filter(|(action, _)| matches!(action, TargetAction::Refused(_)));
        let places = refused.map(|(_, target)| (target.directory, target.name.clone()));
        places.filter(|place| first.contains(place)).collect()
    }
}
