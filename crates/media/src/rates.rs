//! The rates of a track by class.

use crate::{Frame, FrameClass};
use std::collections::VecDeque;
use thalweg_units::{ByteSize, Rate};

/// The averaging window, seconds.
const WINDOW: u64 = 10;

/// The frames and bytes of one second by class.
#[derive(Clone, Copy, Debug, Default)]
struct Second {
    number: u64,
    frames: [u64; 5],
    bytes: [u64; 5],
}

/// The rate of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClassRate {
    /// Frames per second.
    pub frames: f64,
    /// The bit rate.
    pub rate: Rate,
}

/// The rates of a track over its last ten seconds of stream time.
#[derive(Clone, Debug, Default)]
pub struct TrackRates {
    seconds: VecDeque<Second>,
}

impl TrackRates {
    /// Counts a frame.
    pub fn add(&mut self, frame: &Frame) {
        let number = frame.time.as_secs();
        let newest = self.seconds.back().map(|second| second.number);
        if newest.is_none_or(|newest| newest < number) {
            self.seconds.push_back(Second { number, ..Second::default() });
        }
        while self.seconds.front().is_some_and(|oldest| oldest.number + WINDOW < number) {
            self.seconds.pop_front();
        }
        // Frames of different streams of a track arrive slightly out of order.
        let own = self.seconds.iter_mut().rev().find(|second| second.number <= number);
        if let Some(second) = own {
            second.frames[frame.class as usize] += 1;
            second.bytes[frame.class as usize] += frame.bytes.len() as u64;
        }
    }

    /// The rate of a class over the complete seconds of the window; `None` before the first one is complete.
    pub fn class_rate(&self, class: FrameClass) -> Option<ClassRate> {
        let (oldest, newest) = (self.seconds.front()?.number, self.seconds.back()?.number);
        let span = newest - oldest;
        let complete = self.seconds.iter().filter(|second| second.number < newest);
        let (frames, bytes) = complete.fold((0, 0), |(frames, bytes), second| {
            (frames + second.frames[class as usize], bytes + second.bytes[class as usize])
        });
        let rate = Rate::from_bps(ByteSize::from_bytes(bytes).as_bits().checked_div(span)?);
        Some(ClassRate { frames: frames as f64 / span as f64, rate })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn rates_are_averages_of_complete_seconds() {
        let mut rates = TrackRates::default();
        let mut add = |n: u64, class, bytes: usize| {
            let time = Duration::from_millis(40 * n);
            rates.add(&Frame { track: 0, class, time, bytes: vec![0; bytes].into() });
            rates.class_rate(FrameClass::Reference)
        };
        assert_eq!(add(0, FrameClass::Reference, 1000), None);
        for n in 1..1000 {
            add(n, FrameClass::Reference, 1000);
            add(n, FrameClass::Disposable, 500);
        }
        let found = ClassRate { frames: 25.0, rate: Rate::from_bps(200_000) };
        assert_eq!(add(1000, FrameClass::Reference, 1000), Some(found));
        assert_eq!(rates.class_rate(FrameClass::Key), Some(ClassRate::default()));
        assert!(rates.seconds.len() <= 11);
    }
}
