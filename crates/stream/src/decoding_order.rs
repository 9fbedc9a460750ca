//! Frames of a source and of its transcoders in the order of their decoding times. Pure.
//!
//! Legs switch between renditions at aligned key frames, so the renditions of a ladder have to go on together. Frames
//! of the source wait for the transcoders, which are later by the time that they take.

use std::{collections::VecDeque, time::Duration};
use thalweg_media::Frame;
use thalweg_units::Time;

/// An input without frames for this long is not waited for.
const SILENCE: Duration = Duration::from_secs(2);

/// The bounds on waiting.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// The longest time that a frame waits.
    pub time: Duration,
    /// The most bytes that wait.
    pub bytes: usize,
}

/// A frame that waits.
#[derive(Clone, Debug)]
pub struct WaitingFrame {
    pub frame: Frame,
    /// When the source's frame with the same time arrived.
    pub born: Time,
    arrived: Time,
    /// Its position in the order: not below that of the frame before it.
    time: Duration,
}

/// The frames of one input.
#[derive(Debug, Default)]
struct Input {
    waiting: VecDeque<WaitingFrame>,
    newest: Duration,
    /// When its newest frame arrived; `None`: it has stopped.
    last_arrival: Option<Time>,
}

/// Merges inputs. The first one is the source, which every other one follows.
#[derive(Debug)]
pub struct DecodingOrder {
    inputs: Vec<Input>,
    bytes: usize,
    patience: Patience,
}

impl DecodingOrder {
    /// Creates an empty merger for a source and this number of transcoders.
    pub fn new(transcoders: usize, patience: Patience) -> Self {
        let inputs = (0..=transcoders).map(|_| Input::default()).collect();
        Self { inputs, bytes: 0, patience }
    }

    /// Adds the next frame of an input; 0 is the source.
    pub fn push(&mut self, input: usize, frame: Frame, now: Time) {
        let source =
            self.inputs.first().and_then(|source| Some((source.last_arrival?, source.newest)));
        let Some(own) = self.inputs.get_mut(input) else { return };
        own.newest = own.newest.max(frame.time);
        own.last_arrival = Some(now);
        self.bytes += frame.bytes.len();
        let born = match source {
            Some((last_arrival, newest)) if input > 0 => {
                earlier(last_arrival, newest.saturating_sub(frame.time))
            }
            _ => now,
        };
        own.waiting.push_back(WaitingFrame { frame, born, arrived: now, time: own.newest });
    }

    /// Stops waiting for an input, because it has ended.
    pub fn stop_waiting_for(&mut self, input: usize) {
        if let Some(input) = self.inputs.get_mut(input) {
            input.last_arrival = None;
        }
    }

    /// Removes the next frame that need not wait.
    pub fn pop(&mut self, now: Time) -> Option<WaitingFrame> {
        let fronts = self.inputs.iter().enumerate();
        let fronts = fronts.filter_map(|(at, input)| Some((input.waiting.front()?.time, at)));
        let (time, at) = fronts.min()?;
        let is_due = self.bytes > self.patience.bytes || time <= self.limit(now);
        is_due.then(|| self.take(at)).flatten()
    }

    /// Removes the next frame, whether or not it would have to wait.
    pub fn pop_any(&mut self) -> Option<WaitingFrame> {
        let fronts = self.inputs.iter().enumerate();
        let fronts = fronts.filter_map(|(at, input)| Some((input.waiting.front()?.time, at)));
        let (_, at) = fronts.min()?;
        self.take(at)
    }

    fn take(&mut self, at: usize) -> Option<WaitingFrame> {
        let taken = self.inputs.get_mut(at)?.waiting.pop_front()?;
        self.bytes -= taken.frame.bytes.len();
        Some(taken)
    }

    /// Frames up to this time need not wait.
    fn limit(&self, now: Time) -> Duration {
        let is_active = |input: &&Input| {
            input.last_arrival.is_some_and(|last_arrival| now.since(last_arrival) < SILENCE)
        };
        let others = self.inputs.iter().skip(1).filter(is_active);
        let Some(slowest) = others.map(|input| input.newest).min() else { return Duration::MAX };
        let fronts = self.inputs.iter().filter_map(|input| input.waiting.front());
        let overdue = fronts.filter(|front| now.since(front.arrived) >= self.patience.time);
        overdue.map(|front| front.time).fold(slowest, Duration::max)
    }

    /// When the next frame has waited for long enough.
    pub fn due(&self) -> Option<Time> {
        let fronts = self.inputs.iter().filter_map(|input| input.waiting.front());
        fronts.map(|front| front.arrived + self.patience.time).min()
    }
}

fn earlier(time: Time, difference: Duration) -> Time {
    let difference = u64::try_from(difference.as_nanos()).unwrap_or(u64::MAX);
    Time::from_nanos(time.as_nanos().saturating_sub(difference))
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_media::FrameClass;

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    fn at(count: u64) -> Time {
        Time::ZERO + ms(count)
    }

    fn frame(track: u8, time: u64) -> Frame {
        let class = FrameClass::Reference;
        Frame { track, class, time: ms(time), bytes: vec![0; 100].into() }
    }

    /// Tracks and times of the frames that need not wait, and how long ago they were born.
    fn pop(order: &mut DecodingOrder, now: u64) -> Vec<(u8, u64, u64)> {
        let taken = std::iter::from_fn(|| order.pop(at(now)));
        let shown = taken.map(|one| {
            let time = one.frame.time.as_millis() as u64;
            (one.frame.track, time, at(now).since(one.born).as_millis() as u64)
        });
        shown.collect()
    }

    const PATIENCE: Patience = Patience { time: Duration::from_millis(500), bytes: 10_000 };

    #[test]
    fn a_source_waits_for_its_transcoders() {
        let mut order = DecodingOrder::new(1, PATIENCE);
        order.push(0, frame(0, 0), at(1000));
        assert_eq!(pop(&mut order, 1000), [(0, 0, 0)], "no transcoder gives frames");
        order.push(0, frame(0, 40), at(1040));
        order.push(0, frame(0, 80), at(1080));
        order.push(1, frame(1, 0), at(1090));
        assert_eq!(pop(&mut order, 1090), [(1, 0, 90)]);
        order.push(1, frame(1, 40), at(1100));
        assert_eq!(pop(&mut order, 1100), [(0, 40, 60), (1, 40, 60)]);
        assert_eq!(order.due(), Some(at(1580)));
        assert_eq!(pop(&mut order, 1579), []);
        assert_eq!(pop(&mut order, 1580), [(0, 80, 500)], "not for ever");
        order.push(0, frame(0, 600), at(1600));
        assert_eq!(pop(&mut order, 1600), []);
        order.stop_waiting_for(1);
        assert_eq!(pop(&mut order, 1600), [(0, 600, 0)], "the transcoder has ended");
    }

    #[test]
    fn the_slowest_transcoder_counts_and_a_silent_one_does_not() {
        let long = Patience { time: Duration::from_secs(60), ..PATIENCE };
        let mut order = DecodingOrder::new(2, long);
        order.push(0, frame(0, 0), at(0));
        order.push(2, frame(2, 0), at(10));
        order.push(1, frame(1, 0), at(20));
        order.push(1, frame(1, 40), at(30));
        order.push(0, frame(0, 40), at(40));
        let all = pop(&mut order, 40);
        assert_eq!(all.iter().map(|one| one.0).collect::<Vec<_>>(), [0, 1, 2]);
        order.push(1, frame(1, 80), at(2009));
        assert_eq!(pop(&mut order, 2009), []);
        let rest = pop(&mut order, 2010);
        assert_eq!(
            rest.iter().map(|one| (one.0, one.1)).collect::<Vec<_>>(),
            [(0, 40), (1, 40), (1, 80)]
        );
    }

    #[test]
    fn waiting_frames_are_bounded_and_keep_the_order_of_their_input() {
        let mut order = DecodingOrder::new(1, PATIENCE);
        order.push(1, frame(1, 0), at(0));
        pop(&mut order, 0);
        for n in 0..150 {
            // Audio is muxed ahead of the video.
            order.push(0, frame(n % 2, 1000 + u64::from(n) * 10 - u64::from(n % 2) * 15), at(1));
        }
        assert!(order.bytes > PATIENCE.bytes);
        let taken = pop(&mut order, 1);
        assert_eq!(taken.len(), 50);
        assert!(taken.iter().enumerate().all(|(at, one)| usize::from(one.0) == at % 2));
        assert!(order.bytes <= PATIENCE.bytes);
    }
}
