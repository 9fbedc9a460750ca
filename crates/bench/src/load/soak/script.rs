//! The course of one connection. Pure.

use rand_core::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::time::Duration;

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Both ends send and receive, and each closes its direction when it has sent all bytes.
    Whole,
    /// The client sends all bytes and closes its direction; only then the far end starts to send.
    NearFirst,
    /// The far end sends all bytes and closes its direction; only then the client starts to send.
    FarFirst,
    /// The client breaks the connection off midway.
    NearResets,
    /// The far end breaks the connection off midway.
    FarResets,
}

impl Ending {
    /// Whether both ends must receive all bytes.
    pub const fn is_whole(self) -> bool {
        matches!(self, Self::Whole | Self::NearFirst | Self::FarFirst)
    }
}

/// The course of one connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionScript {
    /// Whether the client's leg is an open one.
    pub open: bool,
    /// How the connection ends.
    pub ending: Ending,
    /// The offset in the pattern at which the stream begins.
    pub from: u64,
    near: EndScript,
    far: EndScript,
}

/// The part of one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndScript {
    /// The number of bytes that it sends, unless the connection is broken off.
    pub sends: u64,
    /// The number of bytes that it must receive.
    pub receives: u64,
    /// Whether it waits for the end of the other direction before it sends.
    pub waits: bool,
    /// Whether it breaks the connection off when half is sent.
    pub resets: bool,
    /// The number of received bytes after which it pauses, and the length of the pause.
    pub stall: Option<(u64, Duration)>,
    /// The time between two writes.
    pub pace: Duration,
    /// The size of a write, bytes.
    pub write: usize,
}

impl ConnectionScript {
    /// The script of connection `number`, which is the same at both ends.
    pub fn new(seed: u64, number: u64) -> Self {
        let mixed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(number);
        let mut draw = ScriptDraws(Xoshiro256PlusPlus::seed_from_u64(mixed));
        let ending = match draw.below(100) {
            0..50 => Ending::Whole,
            50..63 => Ending::NearFirst,
            63..76 => Ending::FarFirst,
            76..88 => Ending::NearResets,
            _ => Ending::FarResets,
        };
        let (open, from) = (draw.below(2) == 0, draw.below(1 << 30));
        let (up, down) = (draw.size(), draw.size());
        let mut near = draw.part(up, down);
        let mut far = draw.part(down, up);
        near.waits = ending == Ending::FarFirst;
        far.waits = ending == Ending::NearFirst;
        near.resets = ending == Ending::NearResets;
        far.resets = ending == Ending::FarResets;
        Self { open, ending, from, near, far }
    }

    /// The client's part.
    pub const fn near(&self) -> EndScript {
        self.near
    }

    /// The far end's part.
    pub const fn far(&self) -> EndScript {
        self.far
    }

    /// Whether an end pauses.
    pub const fn stalls(&self) -> bool {
        self.near.stall.is_some() || self.far.stall.is_some()
    }
}

struct ScriptDraws(Xoshiro256PlusPlus);

impl ScriptDraws {
    fn below(&mut self, n: u64) -> u64 {
        self.0.next_u64() % n
    }

    /// A size from 1 kB to 2 MB; each power of two is equally likely.
    fn size(&mut self) -> u64 {
        let magnitude = 10 + self.below(11);
        (1 << magnitude) + self.below(1 << magnitude)
    }

    fn part(&mut self, sends: u64, receives: u64) -> EndScript {
        let stall = (self.below(8) == 0)
            .then(|| (self.below(receives), Duration::from_millis(500 + self.below(7500))));
        EndScript {
            sends,
            receives,
            waits: false,
            resets: false,
            stall,
            pace: Duration::from_millis(self.below(30)),
            write: 1 << (9 + self.below(8)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_draw_the_same_and_all_endings_occur() {
        let all: Vec<_> = (0..1000).map(|n| ConnectionScript::new(7, n)).collect();
        for (n, script) in (0..).zip(&all) {
            assert_eq!(*script, ConnectionScript::new(7, n));
            assert_eq!(script.near.sends, script.far.receives);
            assert_eq!(script.far.sends, script.near.receives);
            assert!(!(script.near.waits && script.far.waits));
            assert_eq!(script.near.resets || script.far.resets, !script.ending.is_whole());
        }
        for ending in [
            Ending::Whole,
            Ending::NearFirst,
            Ending::FarFirst,
            Ending::NearResets,
            Ending::FarResets,
        ] {
            for open in [true, false] {
                let found = |s: &ConnectionScript| s.ending == ending && s.open == open;
                assert!(all.iter().any(found), "{ending:?}, open: {open}");
            }
        }
        assert!(
            all.iter().any(ConnectionScript::stalls) && !all.iter().all(ConnectionScript::stalls)
        );
        assert_ne!(ConnectionScript::new(7, 1), ConnectionScript::new(8, 1));
    }
}
