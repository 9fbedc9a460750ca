//! Which way a source tries next.

use super::{Open, Steering, Way, legs::Used};

impl Steering {
    /// What the open ways make of the legs.
    pub(super) fn used(&self) -> Used {
        let mut used = Used::default();
        for open in &self.open {
            for leg in open.way.legs(self.destination) {
                used.put(leg, open.weight());
            }
        }
        used
    }

    /// What a way would carry if it were opened now, bytes/s.
    pub(super) fn expected(&self, way: &Way) -> f64 {
        self.expected_with(way, &self.used())
    }

    fn expected_with(&self, way: &Way, used: &Used) -> f64 {
        let legs = way.legs(self.destination);
        legs.into_iter().map(|leg| self.legs.room(leg, used)).fold(f64::INFINITY, f64::min)
    }

    /// The way with the most to expect among those that are not open or benched; of equals the
    /// one with fewer intermediates. What carried something before is believed.
    pub(super) fn best_untried(&self, source: u32) -> Option<(Way, f64)> {
        let used = self.used();
        let free = self.candidates(source).into_iter().filter(|way| self.may_open(way));
        let rated = free.map(|way| {
            let expected = self.expected_with(&way, &used);
            let seen = self.benched.get(&way).map_or(expected, |b| b.rate.min(expected));
            (way, seen)
        });
        // Whoever is as good within a tenth is no better: the shorter, earlier one stays.
        rated.fold(None, |best, next| match best {
            Some((_, rate)) if next.1 <= rate * 1.1 => best,
            _ => Some(next),
        })
    }

    /// It is neither open nor benched.
    pub(super) fn may_open(&self, way: &Way) -> bool {
        let is_open = self.of(way.source).any(|open| open.way == *way);
        !is_open && self.benched.get(way).is_none_or(|benched| benched.until <= self.ticks)
    }

    /// The source's way that carries least.
    pub(super) fn slowest(&self, source: u32) -> Option<&Open> {
        self.of(source).min_by(|a, b| a.rate().total_cmp(&b.rate()))
    }
}
