//! What is kept: bytes by interface, and what applications' connections move.

use super::{
    super::kept::{Addition, Kept},
    Table,
};
use thalweg_bond::{Application, Demand};
use thalweg_units::WallTime;

impl Table {
    /// So many bytes more went by an interface, headers among them, by whatever of ours.
    pub fn carried(&mut self, name: &str, bytes: u64, today: WallTime) {
        if self.settings.policy(name).cap.is_some() {
            return self.caps.pay(name, bytes);
        }
        let period = self.period(name, today);
        self.kept.spend(name, bytes, period);
        self.addition.spent(name, bytes, period);
    }

    /// What could not be kept is kept the next time.
    pub fn give_back(&mut self, mut addition: Addition) {
        addition.follow(std::mem::take(&mut self.addition));
        self.addition = addition;
    }

    /// What came since it was last taken, to be kept.
    pub fn take_addition(&mut self) -> Addition {
        std::mem::take(&mut self.addition)
    }

    /// What is kept now, by all processes of the user; what came meanwhile is on top of it.
    pub fn renew(&mut self, mut kept: Kept) {
        self.addition.to(&mut kept);
        self.kept = kept;
    }

    /// What is to be kept.
    pub fn kept(&self) -> &Kept {
        &self.kept
    }

    /// C_demand of each application, the last used first.
    pub fn applications(&self) -> Vec<(&Application, Demand)> {
        self.kept.applications.all()
    }
}
