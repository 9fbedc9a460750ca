//! What a link does to packets at random.

use crate::topology::{Draws, Gilbert, LinkConfig, Loss};

/// A link's own generator and the state of its loss model.
#[derive(Clone, Debug)]
pub(super) struct Impairments {
    draws: Draws,
    loss: Chain,
    /// Share held back, and for how many nanoseconds.
    reorder: (f64, u64),
    duplicate: f64,
    corrupt: f64,
}

/// What happens to one packet that passed the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fate {
    pub(super) lost: bool,
    /// Nanoseconds it is held back, others overtaking.
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

    /// Takes over new probabilities; the loss model starts anew if `loss`.
    pub(super) fn configure(&mut self, config: &LinkConfig, loss: bool) {
        if loss {
            self.loss = config.loss.into();
        }
        let by = u64::try_from(config.reorder.by.as_nanos()).unwrap_or(u64::MAX);
        self.reorder = (config.reorder.probability.get(), by);
        self.duplicate = config.duplicate.get();
        self.corrupt = config.corrupt.get();
    }

    /// Draws for one packet, always in the same order.
    pub(super) fn draw(&mut self) -> Fate {
        if self.loss.loses(&mut self.draws) {
            return Fate { lost: true, ..Fate::default() };
        }
        let held = self.draws.chance(self.reorder.0).then_some(self.reorder.1);
        let duplicated = self.draws.chance(self.duplicate);
        let corrupt = self.draws.chance(self.corrupt).then(|| self.draws.bits());
        Fate { lost: false, held, duplicated, corrupt }
    }
}
