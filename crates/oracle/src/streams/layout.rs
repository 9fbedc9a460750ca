//! The parts of a stream: the shared classes, the classes of each rendition, and the outputs of transcoders.

use std::collections::BTreeMap;
use thalweg_plan::streams::{MAX_PARTS, MAX_PREFERENCES, Made, Part, Parts};
use thalweg_wire::{
    mesh::Name,
    stream::{
        leg::{Level, MAX_TRACKS, Track},
        plan::{Preference, Quality, Subscription, Transcoder},
    },
};

/// The number of classes of one rendition: key, reference, disposable. Tables and audio are shared.
const OWN: usize = 3;

/// The choice of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    /// The position among its preferences.
    pub preference: u8,
    /// The rendition, if the subscription lists several and takes one of them.
    pub track: Option<u8>,
}

/// The meaning of each part.
#[derive(Clone, Debug, Default)]
pub(super) struct Layout {
    tracks: usize,
    parts: Vec<Part>,
    made: Vec<(Transcoder, Quality)>,
}

impl Layout {
    /// Creates the layout of a stream with these tracks, and with unknown ones up to `count`: a publisher declares its
    /// tracks as they begin, and a subscriber may request one that has not begun yet.
    pub fn new(tracks: &[Track], count: usize) -> Self {
        let mut tracks = tracks.to_vec();
        tracks.resize(tracks.len().max(count.min(MAX_TRACKS)), Track::default());
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

    /// The choices of a subscription, the best first: its preferences, each of them for each of its renditions. The
    /// utility of a rendition is the square root of the ratio of its rate to the highest rate, as in the nodes' choice.
    /// A leg that does not send levels sends whole renditions, so lower levels count for the smallest rendition only.
    pub fn choices(
        &self,
        wanted: &Subscription,
        keeps_levels: bool,
    ) -> Vec<(Position, Preference)> {
        let tracks: Vec<u8> =
            wanted.tracks.iter().copied().filter(|track| self.rate(*track) > 0).collect();
        let highest = tracks.iter().map(|track| self.rate(*track)).max().unwrap_or(0);
        let lowest = tracks.iter().copied().min_by_key(|track| self.rate(*track));
        let mut choices = Vec::new();
        for (preference, one) in (0..).zip(&wanted.preferences) {
            if tracks.len() < 2 || one.transcoder.is_some() || one.quality.track.is_some() {
                choices.push((Position { preference, track: None }, one.clone()));
                continue;
            }
            let is_sent = |track: &&u8| keeps_levels || preference == 0 || Some(**track) == lowest;
            for track in tracks.iter().filter(is_sent) {
                let share = (self.rate(*track) as f64 / highest as f64).sqrt();
                let quality = Quality { track: Some(*track), ..one.quality };
                let utility = one.utility * share;
                let position = Position { preference, track: Some(*track) };
                choices.push((position, Preference { quality, utility, transcoder: None }));
            }
        }
        if tracks.len() >= 2 {
            choices.sort_by(|one, other| other.1.utility.total_cmp(&one.1.utility));
            choices.truncate(MAX_PREFERENCES);
        }
        choices
    }

    /// The rate of a rendition's pictures, bit/s; zero if it is unknown.
    fn rate(&self, track: u8) -> u64 {
        let first = 1 + OWN * usize::from(track);
        let is_known = usize::from(track) < self.tracks;
        let parts = if is_known { &self.parts[first..first + OWN] } else { &[] };
        parts.iter().map(|part| part.bps).sum()
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
        let mut layout = Layout::new(&tracks, 0);
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
        let layout = Layout::new(&[Track { label: String::new(), rates: [0, 0, 1, 2, 3] }], 0);
        let quality = Quality { track: None, level: Level::NoDisposable };
        assert_eq!(layout.describe(0b0111).0, [quality]);
    }
}
