//! Reports the files to fetch, in parts.

use super::super::{
    Event, EventSink, FileListed,
    landing::{PassedOver, printable},
};
use std::sync::Arc;
use thalweg_files::inventory::Inventory;
use thalweg_paths::overlay::Overlay;
use thalweg_wire::object::{FileRef, base};

/// The maximum number of files in one event: a line of some 100 kB as JSON.
const PART: usize = 1000;

/// Reports all files. Consecutive files of one source share events.
pub(super) fn report(inventory: &Inventory, overlay: &Overlay, events: &Arc<dyn EventSink>) {
    let parts = inventory.files.chunk_by(|a, b| a.source == b.source);
    for part in parts.flat_map(|of_source| of_source.chunks(PART)) {
        let first = part.first().and_then(|wanted| overlay.names.get(wanted.source as usize));
        let Some(source) = first.cloned() else { continue };
        let listed = part.iter().map(|wanted| FileListed {
            path: there(&wanted.file),
            bytes: wanted.file.snapshot.size,
            missing_bytes: wanted.missing.iter().map(|range| range.end - range.start).sum(),
        });
        events.event(Event::Files { source, files: listed.collect() });
    }
}

/// The maximum number of paths of a source that an event names; the rest is counted.
const NAMED: usize = 10;

/// Reports items that are left out on purpose, in one event per source.
pub(super) fn report_passed_over(
    all: &[PassedOver],
    overlay: &Overlay,
    events: &Arc<dyn EventSink>,
) {
    for of_source in all.chunk_by(|a, b| a.source == b.source) {
        let first = of_source.first().and_then(|passed| overlay.names.get(passed.source as usize));
        let Some(source) = first.cloned() else { continue };
        let (ours, special): (Vec<_>, Vec<_>) = of_source.iter().partition(|passed| passed.is_ours);
        let some = special.iter().chain(&ours).map(|passed| printable(&passed.path));
        events.event(Event::PassedOver {
            source,
            special: special.len() as u64,
            own: ours.len() as u64,
            paths: some.take(NAMED).collect(),
        });
    }
}

/// The file's path at the source, made printable.
fn there(file: &FileRef) -> String {
    let base = base(&file.root).escape_ascii();
    if file.path.as_bytes().is_empty() { base.to_string() } else { format!("{base}/{}", file.path) }
}
