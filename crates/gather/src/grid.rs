//! The default slot length and data unit of a timetable (§VI, "Construction of Corresponding Graph").

use std::time::Duration;
use thalweg_paths::overlay::Overlay;
use thalweg_plan::collection::Grid;
use thalweg_units::{ByteSize, Rate};

/// The approximate number of slots of a plan: the paper's T.
const SLOTS: f64 = 150.0;

/// The minimum slot length in round trips, so that its connections get past slow start. The paper uses 50 of the
/// longest: "100 times bigger than the maximum propagation delay".
const ROUND_TRIPS: u32 = 10;

/// The round trip assumed if none is known: the longest in the paper.
const ROUND_TRIP: Duration = Duration::from_millis(80);

/// The minimum slot length, because each slot begins connections.
const SHORTEST: Duration = Duration::from_millis(200);

/// The maximum slot length. A plan over legs that need more is useless anyway.
const LONGEST: Duration = Duration::from_secs(86_400);

/// The minimum number of data units of each source in a slot, which keeps the rounding loss small. The paper's C is 30.
const UNITS: u64 = 24;

/// The data unit of the paper, bytes.
const UNIT: u64 = 64 << 10;

/// The minimum data unit, bytes: smaller units only cost time.
const SMALLEST_UNIT: u64 = 1 << 10;

/// Chooses the grid for these amounts, so that the plan has about the paper's 150 slots. A given `slot` or `unit` is
/// used as it is.
///
/// `bound_seconds` is a lower bound of the plan's duration, if one is known.
pub fn choose(
    overlay: &Overlay,
    amounts: &[ByteSize],
    bound_seconds: Option<f64>,
    slot: Option<Duration>,
    unit: Option<ByteSize>,
) -> Grid {
    let slot = slot.unwrap_or_else(|| usual_slot(overlay, bound_seconds));
    let unit = unit.unwrap_or_else(|| usual_unit(overlay, amounts, slot));
    Grid { slot, unit }
}

fn usual_slot(overlay: &Overlay, bound_seconds: Option<f64>) -> Duration {
    let longest = overlay.rtts.values().copied().max().unwrap_or(ROUND_TRIP);
    let share = Duration::try_from_secs_f64(bound_seconds.unwrap_or_default() / SLOTS);
    let least = (longest * ROUND_TRIPS).max(SHORTEST);
    let slot = share.unwrap_or(LONGEST).max(least).min(LONGEST);
    // Rounded up to hundredths of a second, because people read it.
    Duration::from_millis((slot.as_millis() as u64).div_ceil(10) * 10)
}

/// The paper's unit, or a smaller one if the best leg of a source carries fewer than 24 of them per slot.
fn usual_unit(overlay: &Overlay, amounts: &[ByteSize], slot: Duration) -> ByteSize {
    let has_data = |host: &usize| amounts.get(*host).is_some_and(|amount| amount.as_bytes() > 0);
    let best = |host: usize| overlay.rates.outs(host).map(|(_, rate)| rate).max();
    let slowest: Option<Rate> =
        (0..overlay.sources).filter(has_data).filter_map(best).filter(|r| *r > Rate::ZERO).min();
    let most = slowest.map_or(UNIT, |rate| rate.bytes_in(slot).as_bytes() / UNITS);
    ByteSize::from_bytes(most.clamp(SMALLEST_UNIT, UNIT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_paths::estimates::Estimates;
    use thalweg_wire::mesh::Name;

    fn overlay(table: &str) -> Overlay {
        let name = |text: &str| -> Name { text.parse().unwrap() };
        let estimates = Estimates::parse(&format!("from,to,rate,rtt\n{table}")).unwrap();
        estimates.overlay(&[name("a"), name("b")], &[], &name("d"))
    }

    fn chosen(table: &str, bound: Option<f64>) -> (u128, u64) {
        let amounts = [ByteSize::from_bytes(1 << 30); 2];
        let grid = choose(&overlay(table), &amounts, bound, None, None);
        (grid.slot.as_millis(), grid.unit.as_bytes())
    }

    #[test]
    fn a_long_plan_has_the_papers_number_of_slots_and_its_unit() {
        // The paper's example: 1,200 s in slots of 8 s, with a unit of 64 KiB.
        let legs = "a,d,2.5 Mbit/s,80 ms\nb,d,10 Mbit/s,20 ms\n";
        assert_eq!(chosen(legs, Some(1200.0)), (8_000, 65_536));
    }

    #[test]
    fn a_short_plan_has_slots_of_ten_round_trips_and_units_that_fit() {
        let legs = "a,d,2.5 Mbit/s,80 ms\nb,d,10 Mbit/s,20 ms\n";
        // 250 kB in a slot of 800 ms, in 24 units.
        assert_eq!(chosen(legs, Some(12.0)), (800, 250_000 / 24));
        assert_eq!(chosen("a,d,8 Mbit/s,\nb,d,9 bit/s,\n", None), (800, 1_024));
        assert_eq!(chosen("a,d,1 Gbit/s,1 ms\n", Some(3.0)), (200, 65_536));
    }

    #[test]
    fn a_given_slot_and_unit_are_used() {
        let (slot, unit) = (Duration::from_secs(3), ByteSize::from_bytes(7));
        let overlay = overlay("a,d,8 Mbit/s,\n");
        let grid = choose(&overlay, &[], Some(f64::INFINITY), Some(slot), Some(unit));
        assert_eq!(grid, Grid { slot, unit });
        assert!(choose(&overlay, &[], Some(1e300), None, None).slot > slot);
    }
}
