//! Files that failed, as they are told: of many that fail for one reason the first, and how many more.

use super::{Event, EventSink};
use thalweg_base::sample::{More, Sample};
use thalweg_wire::mesh::Name;

/// A file that failed: whose, its path made printable, and why.
pub(super) type FailedFile = (Name, String, String);

/// Tells them.
pub(super) fn tell(events: &dyn EventSink, all: impl IntoIterator<Item = FailedFile>) {
    let mut sample = Sample::default();
    for (source, file, why) in all {
        // Of errors that name their file the rest is the kind.
        if sample.takes(source.as_str(), &why.replace(&file, "")) {
            events.event(Event::FileFailed { source, file, why });
        }
    }
    for More { whose, why, count } in sample.more() {
        events.event(Event::MoreFailed { source: whose.parse().ok(), why, count });
    }
}
