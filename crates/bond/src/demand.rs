//! How many bytes a connection of an application is expected to move.

use serde::{Deserialize, Serialize};

/// 1/α of Eq. (1), as a shift: α = 0.125, "obtained by an efficient shift operation".
const SHIFT: u32 = 3;

/// C_demand of §II-B: the mean bytes of a connection, in which the last ones weigh most.
///
/// Stored as eight times its value, so that the shift loses nothing. The paper does not give an initial value; here it
/// is the first connection's bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Demand {
    scaled: u64,
    connections: u64,
}

impl Demand {
    /// Records a connection that ended and moved this many bytes, both directions together (CC_demand), by Eq. (1):
    /// `C ← (1 − α)·C + α·CC`.
    pub fn record_connection(&mut self, bytes: u64) {
        self.scaled = match self.connections {
            0 => bytes.saturating_mul(1 << SHIFT),
            _ => (self.scaled - (self.scaled >> SHIFT)).saturating_add(bytes),
        };
        self.connections = self.connections.saturating_add(1);
    }

    /// C_demand in bytes; `None` before the first connection ended.
    pub fn bytes(&self) -> Option<u64> {
        (self.connections > 0).then_some(self.scaled >> SHIFT)
    }

    /// The number of connections in the mean.
    pub fn connections(&self) -> u64 {
        self.connections
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_first_connection_is_the_first_estimate() {
        let mut demand = Demand::default();
        assert_eq!(demand.bytes(), None);
        demand.record_connection(800);
        assert_eq!(demand.bytes(), Some(800));
        demand.record_connection(1600);
        assert_eq!(demand.bytes(), Some(900));
    }

    proptest! {
        #[test]
        fn the_mean_is_that_of_equation_1(all in prop::collection::vec(0u64..1 << 40, 1..200)) {
            let mut demand = Demand::default();
            let mut exact = all[0] as f64;
            demand.record_connection(all[0]);
            for bytes in &all[1..] {
                demand.record_connection(*bytes);
                exact = (1.0 - 0.125) * exact + 0.125 * *bytes as f64;
            }
            let got = demand.bytes().unwrap() as f64;
            prop_assert!((got - exact).abs() <= 2.0 + exact * 1e-9, "{got} is not {exact}");
        }

        #[test]
        fn the_mean_stays_between_the_least_and_the_most(all in prop::collection::vec(0u64..1 << 50, 1..100)) {
            let mut demand = Demand::default();
            all.iter().for_each(|bytes| demand.record_connection(*bytes));
            let (least, most) = (all.iter().min().unwrap(), all.iter().max().unwrap());
            let got = demand.bytes().unwrap();
            prop_assert!(got + 1 >= *least && got <= *most);
        }
    }
}
