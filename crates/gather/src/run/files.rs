//! Which files are to be fetched, told in parts.

use super::super::{Event, EventSink, FileListed};
use std::sync::Arc;
use thalweg_files::inventory::Inventory;
use thalweg_paths::overlay::Overlay;
use thalweg_wire::object::{FileRef, base};

/// Files of one event: a line of some 100 kB as JSON.
const PART: usize = 1000;

/// Tells all of them, those of a source together as they come.
pub(super) fn tell(inventory: &Inventory, overlay: &Overlay, events: &Arc<dyn EventSink>) {
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

/// Its path at the source, made printable.
fn there(file: &FileRef) -> String {
    let base = base(&file.root).escape_ascii();
    if file.path.as_bytes().is_empty() { base.to_string() } else { format!("{base}/{}", file.path) }
}
