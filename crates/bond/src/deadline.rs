//! Meets a deadline at the least cost.

use std::time::Duration;
use thalweg_units::Rate;

/// What an interface offers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Offer {
    pub rate: Rate,
    /// The price of a byte, in any unit.
    pub price: f64,
    /// The bytes that it may still move; `None`: any number.
    pub left: Option<u64>,
}

/// The bytes that each interface moves so that `bytes` arrive `within` this time at the least cost: the cheapest first,
/// each up to its maximum.
///
/// # Errors
/// If not all bytes can arrive in time: the maximum share of each interface.
pub fn cheapest_shares(
    offers: &[Offer],
    bytes: u64,
    within: Duration,
) -> Result<Vec<u64>, Vec<u64>> {
    let most =
        |offer: &Offer| offer.rate.bytes_in(within).as_bytes().min(offer.left.unwrap_or(u64::MAX));
    let mut order: Vec<usize> = (0..offers.len()).collect();
    // Among equals the fastest first, so that as few as possible are used.
    order.sort_by(|a, b| {
        let price = offers[*a].price.total_cmp(&offers[*b].price);
        price.then(offers[*b].rate.cmp(&offers[*a].rate)).then(a.cmp(b))
    });
    let (mut shares, mut rest) = (vec![0; offers.len()], bytes);
    for at in order {
        shares[at] = most(&offers[at]).min(rest);
        rest -= shares[at];
    }
    if rest == 0 { Ok(shares) } else { Err(shares) }
}

/// The share of the remaining time that is planned with, because rates fall.
const PLANNED: f64 = 0.9;

/// Which of the interfaces `paid`, which cost money, must begin now so that `bytes` arrive within `left`, while those
/// in use bring `free`. Each begins as late as possible, because what the free ones bring until then costs nothing. An
/// interface of unknown rate (zero) begins when it is clear that the others do not suffice. The result is in the order
/// of `paid`.
pub fn must_begin(free: Rate, paid: &[Offer], bytes: u64, left: Duration) -> Vec<bool> {
    let left = left.mul_f64(PLANNED);
    let mut offers = vec![Offer { rate: free, price: f64::NEG_INFINITY, left: None }];
    offers.extend(paid);
    let must = |(offer, share): (&Offer, u64)| {
        // If it begins later, it cannot move its share in time.
        share > 0
            && offer.rate.time_for(thalweg_units::ByteSize::from_bytes(share))
                >= left.mul_f64(PLANNED)
    };
    match cheapest_shares(&offers, bytes, left) {
        Ok(shares) => paid.iter().zip(shares.into_iter().skip(1)).map(must).collect(),
        Err(_) => vec![true; paid.len()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn offer(mbps: f64, price: f64, left: Option<u64>) -> Offer {
        Offer { rate: Rate::from_mbps(mbps), price, left }
    }

    #[test]
    fn the_dear_interface_moves_what_the_cheap_one_cannot() {
        let offers = [offer(80.0, 5.0, None), offer(8.0, 0.0, None)];
        let within = Duration::from_secs(10);
        assert_eq!(cheapest_shares(&offers, 5_000_000, within), Ok(vec![0, 5_000_000]));
        assert_eq!(cheapest_shares(&offers, 30_000_000, within), Ok(vec![20_000_000, 10_000_000]));
        assert_eq!(
            cheapest_shares(&offers, 200_000_000, within),
            Err(vec![100_000_000, 10_000_000])
        );
        let capped = [offer(80.0, 5.0, Some(1000)), offer(8.0, 0.0, None)];
        assert_eq!(cheapest_shares(&capped, 30_000_000, within), Err(vec![1000, 10_000_000]));
    }

    #[test]
    fn paid_interfaces_begin_as_late_as_possible() {
        let free = Rate::from_mbps(8.0);
        let paid = [offer(80.0, 5.0, None)];
        let at = |bytes: u64, s: u64| must_begin(free, &paid, bytes, Duration::from_secs(s));
        // 1 MB/s for 90 of 100 s is enough.
        assert_eq!(at(90_000_000, 100), [false]);
        // 10 MB remain for the paid interface, which takes 1 s.
        assert_eq!(at(100_000_000, 100), [false]);
        // 9 MB by the free interface, and 86 MB by the paid one, take most of the time.
        assert_eq!(at(95_000_000, 10), [true]);
        assert_eq!(at(100_000_000, 10), [true], "as many as can be");
        let unknown = [offer(0.0, 5.0, None)];
        let at = |bytes: u64| must_begin(free, &unknown, bytes, Duration::from_secs(10));
        assert_eq!((at(9_000_000), at(9_100_000)), (vec![false], vec![true]));
        let two = [offer(8.0, 5.0, None), offer(8.0, 1.0, None)];
        let at = |bytes: u64| must_begin(free, &two, bytes, Duration::from_secs(10));
        assert_eq!(at(18_000_000), [false, true], "the cheaper one first");
        assert_eq!(at(27_000_000), [true, true]);
    }

    proptest! {
        /// No bytes can be moved from a dearer interface to a cheaper one.
        #[test]
        fn shares_have_the_least_cost(
            all in prop::collection::vec((0u64..100_000, 0u8..5, prop::option::of(0u64..50_000)), 1..6),
            bytes in 0u64..200_000,
        ) {
            let offers: Vec<Offer> = all.iter().map(|(bps, price, left)| Offer {
                rate: Rate::from_bps(*bps), price: (*price).into(), left: *left,
            }).collect();
            let within = Duration::from_secs(8);
            let most = |o: &Offer| o.rate.bytes_in(within).as_bytes().min(o.left.unwrap_or(u64::MAX));
            let result = cheapest_shares(&offers, bytes, within);
            let all_used = result.is_err();
            let shares = result.unwrap_or_else(|shares| shares);
            let sum: u64 = shares.iter().sum();
            prop_assert_eq!(sum < bytes, all_used);
            for (a, share) in offers.iter().zip(&shares) {
                prop_assert!(*share <= most(a));
                for (b, other) in offers.iter().zip(&shares) {
                    prop_assert!(!(b.price < a.price && *share > 0 && *other < most(b)));
                }
                prop_assert!(!all_used || *share == most(a));
            }
        }
    }
}
