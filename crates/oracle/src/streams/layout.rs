//! The parts of a stream: the shared classes, the classes of each rendition, and the outputs of transcoders.

use std::collections::BTreeMap;
use thalweg_plan::streams::{MAX_PARTS, Made, Part, Parts};
use thalweg_wire::{
    mesh::Name,
    stream::{
        leg::{Level, Track},
        plan::{Preference, Quality, Transcoder},
    },
};

/// The number of classes of one rendition: key, reference, disposable. Tables and audio are shared.
const OWN: usize = 3;

/// The meaning of each part.
#[derive(Clone, Debug, Default)]
pub(super) struct Layout {
    tracks: usize,
    parts: Vec<Part>,
    made: Vec<(Transcoder, Quality)>,
}

impl Layout {
    /// Creates the layout of a stream with these tracks.
    pub fn new(tracks: &[Track]) -> Self {
        let sent = |bps| Part { bps, made: None };
        let shared = tracks.iter().flat_map(|track| &track.rates[..2]).sum();
        let own = tracks.iter().flat_map(|track| &track.rates[2..]).map(|bps| sent(*bps));
        let parts = [sent(shared)].into_iter().chain(own).collect();
        Self { tracks: tracks.len(), parts, made: Vec::new() }
    }

    /// The parts for the problem.
    pub fn parts(&self) -> Vec<Part> {
        self.parts.clone()
    }

    /// The parts of a preference; `None` if there is no such track, no node can run its transcoder, or there are too
    /// many parts. `known` has the numbers of transcoders.
    pub fn needs(&mut self, wanted: &Preference, known: &BTreeMap<Name, u8>) -> Option<Parts> {
        let read = self.read(wanted.quality)?;
        let Some(transcoder) = &wanted.transcoder else { return Some(read) };
        let number = *known.get(&transcoder.name)?;
        let made = (transcoder.clone(), wanted.quality);
        let first = self.parts.len() - self.made.len();
        if let Some(at) = self.made.iter().position(|other| *other == made) {
            return Some(1 << (first + at));
        }
        if self.parts.len() == MAX_PARTS {
            return None;
        }
        self.made.push(made);
        let made = Some(Made { transcoder: number, from: read });
        self.parts.push(Part { bps: transcoder.bps, made });
        Some(1 << (self.parts.len() - 1))
    }

    /// The parts of a quality that the publisher sends.
    fn read(&self, quality: Quality) -> Option<Parts> {
        if quality.track.is_some_and(|track| usize::from(track) >= self.tracks) {
            return None;
        }
        let of_track = |track: usize| {
            let classes =
                (0..OWN).filter(move |class| quality.takes(track as u8, *class as u8 + 2));
            classes.map(move |class| 1 << (1 + OWN * track + class))
        };
        Some((0..self.tracks).flat_map(of_track).fold(1, |all: Parts, part| all | part))
    }

    /// Describes parts as qualities and transcoder outputs of the protocol.
    pub fn describe(&self, parts: Parts) -> (Vec<Quality>, Vec<Transcoder>) {
        let level = |track: usize| {
            let has = |class: usize| parts & (1 << (1 + OWN * track + class)) != 0;
            match [has(2), has(1), has(0)] {
                [true, ..] => Some(Level::All),
                [_, true, _] => Some(Level::NoDisposable),
                [_, _, true] => Some(Level::Keys),
                _ => None,
            }
        };
        let levels: Vec<_> = (0..self.tracks).map(level).collect();
        let qualities = match levels[..] {
            [Some(first), ref others @ ..] if others.iter().all(|other| *other == Some(first)) => {
                vec![Quality { track: None, level: first }]
            }
            _ => (0..)
                .zip(&levels)
                .filter_map(|(track, level)| {
                    level.map(|level| Quality { track: Some(track), level })
                })
                .collect(),
        };
        let made = (self.parts.len() - self.made.len()..).zip(&self.made);
        let made = made.filter(|(at, _)| parts & (1 << at) != 0);
        (qualities, made.map(|(_, (transcoder, _))| transcoder.clone()).collect())
    }

    /// The transcoder that makes a part.
    pub fn transcoder(&self, part: u8) -> Option<&Transcoder> {
        let first = self.parts.len() - self.made.len();
        usize::from(part).checked_sub(first).and_then(|at| self.made.get(at)).map(|(of, _)| of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn preference(track: Option<u8>, level: Level, transcoder: Option<&str>) -> Preference {
        let transcoder =
            transcoder.map(|name| Transcoder { name: name.parse().unwrap(), bps: 90_000 });
        Preference { quality: Quality { track, level }, utility: 1.0, transcoder }
    }

    #[test]
    fn parts_and_words_say_the_same() {
        let track = |rates| Track { label: String::new(), rates };
        let tracks = [track([8, 100, 200, 300, 400]), track([0, 0, 20, 30, 40])];
        let mut layout = Layout::new(&tracks);
        let known = BTreeMap::from([("small".parse().unwrap(), 5)]);
        let mut describe = |wanted: &Preference| {
            let parts = layout.needs(wanted, &known)?;
            let bps = (0..layout.parts.len()).filter(|part| parts & (1 << part) != 0);
            let bps: u64 = bps.map(|part| layout.parts[part].bps).sum();
            Some((bps, layout.describe(parts)))
        };
        let all = preference(None, Level::All, None);
        assert_eq!(describe(&all), Some((1098, (vec![all.quality], vec![]))));
        let second = preference(Some(1), Level::NoDisposable, None);
        assert_eq!(describe(&second), Some((158, (vec![second.quality], vec![]))));
        let small = preference(Some(0), Level::All, Some("small"));
        let made = small.transcoder.clone().unwrap();
        assert_eq!(describe(&small), Some((90_000, (vec![], vec![made]))));
        assert_eq!(describe(&preference(Some(2), Level::All, None)), None);
        assert_eq!(describe(&preference(None, Level::All, Some("other"))), None);
        let parts = layout.needs(&small, &known).unwrap();
        assert_eq!((layout.parts.len(), parts), (8, 1 << 7), "the same is made once");
    }

    #[test]
    fn one_track_is_the_whole_stream() {
        let layout = Layout::new(&[Track { label: String::new(), rates: [0, 0, 1, 2, 3] }]);
        let quality = Quality { track: None, level: Level::NoDisposable };
        assert_eq!(layout.describe(0b0111).0, [quality]);
    }
}
