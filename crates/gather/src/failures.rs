//! Reports failed files: for each reason the first ones by name, and the number of the others.

use super::{Event, EventSink};
use thalweg_base::sample::{FailureSample, UnlistedFailures};
use thalweg_wire::mesh::Name;

/// A failed file: its source, its printable path, and the reason.
pub(super) type FailedFile = (Name, String, String);

/// Reports all failures as events.
pub(super) fn report(events: &dyn EventSink, all: impl IntoIterator<Item = FailedFile>) {
    let mut sample = FailureSample::default();
    for (source, file, why) in all {
        // Some errors name their file; without the name, equal reasons compare equal.
        if sample.takes(source.as_str(), &why.replace(&file, "")) {
            events.event(Event::FileFailed { source, file, why });
        }
    }
    for UnlistedFailures { whose, why, count } in sample.more() {
        events.event(Event::MoreFailed { source: whose.parse().ok(), why, count });
    }
}
