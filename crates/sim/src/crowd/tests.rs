use super::*;
use crate::matrix::Matrix;

/// Server 0, client 1, relays 2 and 3; Mbit/s. Directly 4, by 2: 8, by 3: 2.
fn world() -> World {
    let mut way = Matrix::from_fn(4, |_, _| Some(8.0));
    way.set(0, 1, Some(4.0));
    way.set(0, 3, Some(2.0));
    World::from_matrix(way, Matrix::unknown(4))
}

const SETTINGS: Settings = Settings {
    size: 120.0,
    sampling: 5.0,
    cut_off: 20.0,
    relayed: 1.0,
    ramp: 0.0,
    noise: Noise { seed: 1, round: 0, download: 0.0, phase: 0.0 },
};

struct FixedRelays(Vec<usize>);

impl RelayChoice for FixedRelays {
    fn choose_relays(&mut self, _: &RelayQuery<'_>) -> Vec<usize> {
        self.0.clone()
    }
}

fn programme(client: usize, servers: &[usize]) -> Programme {
    Programme { client, servers: servers.to_vec() }
}

#[test]
fn the_fastest_path_seen_fetches_the_rest() {
    let mut world = world();
    (world.up, world.down) = (vec![100.0; 4], vec![100.0; 4]);
    let outcomes = run(&world, &SETTINGS, &[programme(1, &[0])], &mut FixedRelays(vec![2, 3]));
    let [only] = &outcomes[..] else { panic!("{outcomes:?}") };
    assert_eq!(only.relay, Some(2));
    // Shares of 40: path 2 (8 Mbit/s) has all of its own after 5 s, the others 20 and 10.
    assert_eq!(only.sampled, [(None, 4.0), (Some(2), 8.0), (Some(3), 2.0)]);
    assert_eq!(only.gains(), [(2, 1.0), (3, 0.0)]);
    // The 50 left take 6.25 s at 8.
    assert!((only.rate - 120.0 / 11.25).abs() < 1e-9, "{}", only.rate);
}

#[test]
fn sampling_shares_the_client_s_access_link() {
    let mut world = world();
    world.down[1] = 6.0;
    let outcomes = run(&world, &SETTINGS, &[programme(1, &[0])], &mut FixedRelays(vec![2, 3]));
    // Three flows want 4, 8 and 2; fair shares are 2 each, so nothing beats direct.
    assert_eq!(outcomes[0].sampled, [(None, 2.0), (Some(2), 2.0), (Some(3), 2.0)]);
    assert_eq!(outcomes[0].relay, None);
}

#[test]
fn a_slow_transfer_is_cut_off_and_its_rate_counts() {
    let outcomes = run(&world(), &SETTINGS, &[programme(1, &[0])], &mut Direct);
    assert_eq!((outcomes[0].rate, outcomes[0].ended), (4.0, 20.0));
    assert_eq!(outcomes[0].gains(), []);
}

#[test]
fn a_programme_goes_on_with_its_next_server_and_clients_share_relays() {
    let mut world = world();
    world.forward[2] = 8.0;
    world.up = vec![100.0; 4];
    world.way.set(0, 3, Some(4.0));
    let programmes = [programme(1, &[0, 0]), programme(3, &[0])];
    let outcomes = run(&world, &SETTINGS, &programmes, &mut FixedRelays(vec![2]));
    assert_eq!(outcomes.len(), 3);
    // Both sample relay 2 at once: 4 each, no better than direct.
    let first = outcomes.iter().find(|o| o.client == 1).unwrap();
    assert_eq!(first.sampled, [(None, 4.0), (Some(2), 4.0)]);
    // The second download of client 1 begins when its first ends.
    let second = outcomes.iter().filter(|o| o.client == 1).nth(1).unwrap();
    assert_eq!(second.began, first.ended);
}

#[test]
fn each_download_moves_the_whole_file() {
    let settings = Settings {
        cut_off: 1e9,
        noise: Noise { download: 0.5, phase: 0.3, ..SETTINGS.noise },
        ..SETTINGS
    };
    for relays in [vec![], vec![2], vec![2, 3]] {
        let outcomes =
            run(&world(), &settings, &[programme(1, &[0, 0, 0])], &mut FixedRelays(relays));
        for o in &outcomes {
            assert!((o.rate * (o.ended - o.began) - settings.size).abs() < 1e-6, "{o:?}");
        }
        assert_eq!(outcomes.len(), 3);
    }
}
