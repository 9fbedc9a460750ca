//! Random impairments of a link: loss, reordering, duplication, corruption.

use crate::topology::{Draws, Gilbert, LinkConfig, Loss};

/// A link's random generator, probabilities and the state of its loss model.
#[derive(Clone, Debug)]
pub(super) struct Impairments {
    draws: Draws,
    loss: Chain,
    /// The probability of being held back, and the time, ns.
    reorder: (f64, u64),
    duplicate: f64,
    corrupt: f64,
}

/// The impairments of one packet that passed the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PacketFate {
    pub(super) lost: bool,
    /// How long it is held back while others overtake it, ns.
    pub(super) held: Option<u64>,
    pub(super) duplicated: bool,
    /// Random bits that choose the bit to flip.
    pub(super) corrupt: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
enum Chain {
    Random(f64),
    Gilbert { model: Gilbert, bad: bool },
}

impl From<Loss> for Chain {
    fn from(loss: Loss) -> Self {
        match loss {
            Loss::None => Self::Random(0.0),
            Loss::Random(p) => Self::Random(p.get()),
            Loss::Gilbert(model) => Self::Gilbert { model, bad: false },
        }
    }
}

impl Chain {
    fn loses(&mut self, draws: &mut Draws) -> bool {
        match self {
            Self::Random(p) => draws.chance(*p),
            Self::Gilbert { model, bad } => {
                let (loss, leave) = match bad {
                    true => (model.in_bad, model.bad_to_good),
                    false => (model.in_good, model.good_to_bad),
                };
                let lost = draws.chance(loss.get());
                *bad ^= draws.chance(leave.get());
                lost
            }
        }
    }
}

impl Impairments {
    pub(super) fn new(config: &LinkConfig, seed: u64) -> Self {
        let mut it = Self {
            draws: Draws::new(seed),
            loss: Chain::Random(0.0),
            reorder: (0.0, 0),
            duplicate: 0.0,
            corrupt: 0.0,
        };
        it.configure(config, true);
        it
    }

    /// Applies new probabilities. Restarts the loss model if `loss` is set.
    pub(super) fn configure(&mut self, config: &LinkConfig, loss: bool) {
        if loss {
            self.loss = config.loss.into();
        }
        let by = u64::try_from(config.reorder.by.as_nanos()).unwrap_or(u64::MAX);
        self.reorder = (config.reorder.probability.get(), by);
        self.duplicate = config.duplicate.get();
        self.corrupt = config.corrupt.get();
    }

    /// Draws the fate of one packet, always in the same order of draws.
    pub(super) fn draw(&mut self) -> PacketFate {
        if self.loss.loses(&mut self.draws) {
            return PacketFate { lost: true, ..PacketFate::default() };
        }
        let held = self.draws.chance(self.reorder.0).then_some(self.reorder.1);
        let duplicated = self.draws.chance(self.duplicate);
        let corrupt = self.draws.chance(self.corrupt).then(|| self.draws.bits());
        PacketFate { lost: false, held, duplicated, corrupt }
    }
}
