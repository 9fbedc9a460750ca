//! Packets without a probe: cut and combined so that each datagram fits the path.

use thalweg_measure::riders::{FRAGMENT_HEADER, Fragment};
use thalweg_wire::probe::{OUTER, TAG};

/// The bytes around fragments: the headers of IPv6, UDP and the datagram, its seal, and a byte that announces riders.
const AROUND: u16 = 40 + 8 + OUTER as u16 + TAG as u16 + 1;

/// Every path takes packets of this many bytes (RFC 791).
const LEAST_PATH: u16 = 576;

/// The bytes that fragments may take of a datagram, on a path whose longest packets have `path_mtu` bytes.
pub const fn room(path_mtu: u16) -> usize {
    path_mtu.saturating_sub(AROUND) as usize
}

/// The longest packet that such a path takes whole.
pub const fn mtu(path_mtu: u16) -> usize {
    room(path_mtu).saturating_sub(FRAGMENT_HEADER)
}

/// The size to try next if fragments of `room` bytes do not pass: an eighth less, down to what every path takes.
pub fn shorter(room: usize) -> usize {
    (room - room / 8).max(self::room(LEAST_PATH)).min(room)
}

/// Packs the fragments into datagrams, in order; `room` must exceed a fragment's header.
pub fn pack(fragments: Vec<Fragment>, room: usize) -> Vec<Vec<Fragment>> {
    let mut all: Vec<Vec<Fragment>> = Vec::new();
    let mut left = 0;
    for piece in fragments.into_iter().flat_map(|fragment| pieces(fragment, room)) {
        let cost = piece.cost();
        match all.last_mut().filter(|_| cost <= left) {
            Some(last) => last.push(piece),
            None => {
                all.push(vec![piece]);
                left = room;
            }
        }
        left = left.saturating_sub(cost);
    }
    all
}

fn pieces(fragment: Fragment, room: usize) -> Vec<Fragment> {
    if fragment.cost() <= room {
        return vec![fragment];
    }
    let most = room.saturating_sub(FRAGMENT_HEADER).max(1);
    let Fragment { rider, total, offset, bytes } = fragment;
    let piece = |(n, bytes): (usize, &[u8])| Fragment {
        rider,
        total,
        offset: offset + (n * most) as u16,
        bytes: bytes.to_vec(),
    };
    bytes.chunks(most).enumerate().map(piece).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(rider: u32, length: usize) -> Fragment {
        let bytes = (0..length).map(|at| at as u8).collect();
        Fragment { rider, total: length as u16, offset: 0, bytes }
    }

    fn shown(all: &[Vec<Fragment>]) -> Vec<Vec<(u32, u16, usize)>> {
        let one = |f: &Fragment| (f.rider, f.offset, f.bytes.len());
        all.iter().map(|of| of.iter().map(one).collect()).collect()
    }

    #[test]
    fn ethernet_takes_packets_of_1413_bytes_whole() {
        assert_eq!(mtu(1500), 1413);
        let all = pack(vec![packet(1, 1413), packet(2, 1413)], room(1500));
        assert_eq!(shown(&all), [[(1, 0, 1413)], [(2, 0, 1413)]]);
    }

    #[test]
    fn sizes_shrink_in_steps_to_the_one_that_always_passes() {
        let mut tries = vec![room(1500)];
        while let Some(next) =
            tries.last().map(|last| shorter(*last)).filter(|n| *n < tries[tries.len() - 1])
        {
            tries.push(next);
        }
        assert_eq!((tries.last(), tries.len()), (Some(&room(576)), 9));
        assert_eq!(shorter(room(300)), room(300));
    }

    #[test]
    fn short_fragments_share_a_datagram_and_long_ones_are_cut() {
        let all = pack(vec![packet(1, 40), packet(2, 40), packet(3, 40)], 100);
        assert_eq!(shown(&all), [vec![(1, 0, 40), (2, 0, 40)], vec![(3, 0, 40)]]);
        let all = pack(vec![packet(1, 200), packet(2, 30)], 100);
        assert_eq!(
            shown(&all),
            [vec![(1, 0, 90)], vec![(1, 90, 90)], vec![(1, 180, 20), (2, 0, 30)]]
        );
        assert!(all.iter().all(|of| of.iter().map(Fragment::cost).sum::<usize>() <= 100));
        assert!(pack(Vec::new(), 100).is_empty());
    }
}
