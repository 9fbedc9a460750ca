//! Maps byte ranges of an object to its files.

use std::ops::Range;
use thalweg_wire::cast::{Layout, LayoutKind};

/// The nonempty files of a layout, in order.
#[derive(Clone, Debug)]
pub struct Spans(Vec<Span>);

/// The bytes of the object that one file contains.
#[derive(Clone, Copy, Debug)]
struct Span {
    /// The index of the layout's entry.
    entry: u32,
    /// The offset of its first byte in the object.
    start: u64,
    length: u64,
}

/// A part of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePart {
    /// The index of the layout's entry.
    pub entry: u32,
    /// Its bytes, counted from the file's beginning.
    pub range: Range<u64>,
}

impl Spans {
    /// Creates the map of a layout.
    pub fn new(layout: &Layout) -> Self {
        let mut start = 0;
        let mut spans = Vec::new();
        for (entry, found) in (0..).zip(&layout.entries) {
            if let LayoutKind::File { length: length @ 1.. } = found.kind {
                spans.push(Span { entry, start, length });
                start += length;
            }
        }
        Self(spans)
    }

    /// The parts of files that contain this range of the object. Bytes beyond the object's end are ignored.
    pub fn pieces(&self, range: Range<u64>) -> impl Iterator<Item = FilePart> {
        let first = self.0.partition_point(|span| span.start + span.length <= range.start);
        let within = self.0[first..].iter().take_while(move |span| span.start < range.end);
        within.map(move |span| {
            let from = range.start.max(span.start) - span.start;
            let to = range.end.min(span.start + span.length) - span.start;
            FilePart { entry: span.entry, range: from..to }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_wire::{
        cast::LayoutEntry,
        object::{FilePath, FileTime},
    };

    fn layout(lengths: &[u64]) -> Layout {
        let entry = |(n, length): (usize, &u64)| LayoutEntry {
            path: FilePath::new(format!("f{n}").into()).unwrap(),
            kind: LayoutKind::File { length: *length },
            mode: 0o644,
            modified: FileTime::default(),
            more: None,
        };
        Layout::new(lengths.iter().enumerate().map(entry).collect())
    }

    #[test]
    fn a_range_may_be_in_several_files() {
        let spans = Spans::new(&layout(&[3, 0, 2, 10]));
        let pieces = |range| spans.pieces(range).map(|p| (p.entry, p.range)).collect::<Vec<_>>();
        assert_eq!(pieces(0..3), [(0, 0..3)]);
        assert_eq!(pieces(2..6), [(0, 2..3), (2, 0..2), (3, 0..1)]);
        assert_eq!(pieces(14..99), [(3, 9..10)]);
        assert_eq!(pieces(15..16), []);
    }
}
