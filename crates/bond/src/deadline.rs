//! Meeting a time at the least cost.

use std::time::Duration;
use thalweg_units::Rate;

/// What an interface can bring.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Offer {
    /// Its rate.
    pub rate: Rate,
    /// What a byte costs, in any unit.
    pub price: f64,
    /// Bytes that it may still move; none: any.
    pub left: Option<u64>,
}

/// How many bytes each interface moves so that `bytes` are there `within` this time at the least
/// cost: the cheapest first, each up to what it can bring. `Err`: not all can be; then as many as
/// there can be, each interface at its most.
///
/// # Errors
/// The shares all the same.
pub fn cheapest(offers: &[Offer], bytes: u64, within: Duration) -> Result<Vec<u64>, Vec<u64>> {
    let most =
        |offer: &Offer| offer.rate.bytes_in(within).as_bytes().min(offer.left.unwrap_or(u64::MAX));
    let mut order: Vec<usize> = (0..offers.len()).collect();
    // Among equals the fastest, so that as few as can be are used.
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

/// Of the time that is left so much is planned with: rates fall.
const KEPT: f64 = 0.9;

/// Which of the interfaces that cost, `dear`, must begin now so that `bytes` are there within `left`,
/// where what is in use brings `free`: each as late as can be, as what the free ones bring by then need
/// not be paid. By their order; one whose rate is not known (zero) begins when it is clear that
/// the others do not bring it.
pub fn begins(free: Rate, dear: &[Offer], bytes: u64, left: Duration) -> Vec<bool> {
    let left = left.mul_f64(KEPT);
    let mut offers = vec![Offer { rate: free, price: f64::NEG_INFINITY, left: None }];
    offers.extend(dear);
    let must = |(offer, share): (&Offer, u64)| {
        // Later than this it cannot bring its share.
        share > 0
            && offer.rate.time_for(thalweg_units::ByteSize::from_bytes(share)) >= left.mul_f64(KEPT)
    };
    match cheapest(&offers, bytes, left) {
        Ok(shares) => dear.iter().zip(shares.into_iter().skip(1)).map(must).collect(),
        Err(_) => vec![true; dear.len()],
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
    fn the_dear_one_moves_what_the_cheap_one_cannot() {
        let offers = [offer(80.0, 5.0, None), offer(8.0, 0.0, None)];
        let within = Duration::from_secs(10);
        assert_eq!(cheapest(&offers, 5_000_000, within), Ok(vec![0, 5_000_000]));
        assert_eq!(cheapest(&offers, 30_000_000, within), Ok(vec![20_000_000, 10_000_000]));
        assert_eq!(cheapest(&offers, 200_000_000, within), Err(vec![100_000_000, 10_000_000]));
        let capped = [offer(80.0, 5.0, Some(1000)), offer(8.0, 0.0, None)];
        assert_eq!(cheapest(&capped, 30_000_000, within), Err(vec![1000, 10_000_000]));
    }

    #[test]
    fn what_costs_begins_as_late_as_can_be() {
        let free = Rate::from_mbps(8.0);
        let dear = [offer(80.0, 5.0, None)];
        let at = |bytes: u64, s: u64| begins(free, &dear, bytes, Duration::from_secs(s));
        // 1 MB/s for 90 of 100 s is enough, and for 89 not.
        assert_eq!(at(90_000_000, 100), [false]);
        // 10 MB remain for the dear one, which takes 1 s.
        assert_eq!(at(100_000_000, 100), [false]);
        // 9 MB by the free one, and 86 MB by the other take most of the time.
        assert_eq!(at(95_000_000, 10), [true]);
        assert_eq!(at(100_000_000, 10), [true], "as many as can be");
        let unknown = [offer(0.0, 5.0, None)];
        let at = |bytes: u64| begins(free, &unknown, bytes, Duration::from_secs(10));
        assert_eq!((at(9_000_000), at(9_100_000)), (vec![false], vec![true]));
        let two = [offer(8.0, 5.0, None), offer(8.0, 1.0, None)];
        let at = |bytes: u64| begins(free, &two, bytes, Duration::from_secs(10));
        assert_eq!(at(18_000_000), [false, true], "the cheaper one first");
        assert_eq!(at(27_000_000), [true, true]);
    }

    proptest! {
        /// No bytes can be moved from a dearer one to a cheaper one.
        #[test]
        fn it_is_the_least_cost(
            all in prop::collection::vec((0u64..100_000, 0u8..5, prop::option::of(0u64..50_000)), 1..6),
            bytes in 0u64..200_000,
        ) {
            let offers: Vec<Offer> = all.iter().map(|(bps, price, left)| Offer {
                rate: Rate::from_bps(*bps), price: (*price).into(), left: *left,
            }).collect();
            let within = Duration::from_secs(8);
            let most = |o: &Offer| o.rate.bytes_in(within).as_bytes().min(o.left.unwrap_or(u64::MAX));
            let result = cheapest(&offers, bytes, within);
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
