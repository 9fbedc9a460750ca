//! Which bytes of an object are in which file.

use std::ops::Range;
use thalweg_wire::cast::{Layout, LayoutKind};

/// The files of a layout that have bytes, in order.
#[derive(Clone, Debug)]
pub struct Spans(Vec<Span>);

/// A file's bytes of the object.
#[derive(Clone, Copy, Debug)]
struct Span {
    /// The entry of the layout.
    entry: u32,
    /// Where they begin in the object.
    start: u64,
    length: u64,
}

/// A part of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The entry of the layout.
    pub entry: u32,
    /// Its bytes, from the file's beginning.
    pub range: Range<u64>,
}

impl Spans {
    /// Of this layout.
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

    /// The parts of files that these bytes of the object are; nothing of what lies beyond its end.
    pub fn pieces(&self, range: Range<u64>) -> impl Iterator<Item = Piece> {
        let first = self.0.partition_point(|span| span.start + span.length <= range.start);
        let within = self.0[first..].iter().take_while(move |span| span.start < range.end);
        within.map(move |span| {
            let from = range.start.max(span.start) - span.start;
            let to = range.end.min(span.start + span.length) - span.start;
            Piece { entry: span.entry, range: from..to }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_wire::{cast::LayoutEntry, object::FilePath};

    fn layout(lengths: &[u64]) -> Layout {
        let entry = |(n, length): (usize, &u64)| LayoutEntry {
            path: FilePath::new(format!("f{n}").into()).unwrap(),
            kind: LayoutKind::File { length: *length },
            mode: 0o644,
            modified_ns: 0,
        };
        Layout { entries: lengths.iter().enumerate().map(entry).collect() }
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
