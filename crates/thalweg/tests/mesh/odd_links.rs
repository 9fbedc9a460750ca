//! Bonds of a client whose second interface is unusual.

use crate::{
    bond_lab::{LENGTH, Scene, URL, scene},
    host::{text, until},
    in_lab::{Running, within},
    second_interface,
    two_links::{LINKS, came, came_since},
};
use std::{fs, process::Output};

impl Scene {
    fn get(&self) -> Output {
        let args = ["get", URL, "-o", "file", "--json", "--path", "fra%bond"];
        within(&self.lab, "client", &self.client.command(&args)).output().unwrap()
    }

    /// Runs a download that must succeed. Returns the bytes that arrived by each interface.
    fn download_bytes(&self, why: &str) -> [u64; 2] {
        let before = came(&self.lab);
        let output = self.get();
        let said = || format!("{why}: {}{}", text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{}", said());
        assert!(fs::read(self.client.path("file")).unwrap() == self.bytes, "{why}: other bytes");
        fs::remove_file(self.client.path("file")).unwrap();
        let each = came_since(&self.lab, before);
        println!("{why}: {each:?} bytes of {LENGTH} by the interfaces");
        each
    }
}

#[test]
fn a_small_mtu_does_not_impair_a_bond() {
    let Some(scene) = &scene() else { return };
    second_interface::change(&scene.lab, "client", second_interface::SMALL_PACKETS);
    let each = scene.download_bytes("576 bytes");
    assert!(each.iter().all(|bytes| *bytes > LENGTH as u64 / 3), "{each:?}");
}

/// The relay's name has addresses of both families, but the relay listens on IPv4 only.
#[test]
fn an_interface_without_a_route_to_the_relay_is_not_used() {
    let Some(scene) = &scene() else { return };
    second_interface::change(&scene.lab, "client", second_interface::V6_ALONE);
    let each = scene.download_bytes("IPv6 alone");
    assert!(each[0] > LENGTH as u64 && each[1] < 20_000, "{each:?}");
}

/// Half of the links that the far end learns of exist only for a moment.
#[test]
fn a_flapping_interface_stalls_no_stream_and_floods_no_log() {
    let Some(mut scene) = scene() else { return };
    let before = came(&scene.lab);
    let args = ["get", URL, "-o", "file", "--json", "--path", "fra%bond"];
    let running = within(&scene.lab, "client", &scene.client.command(&args)).spawn().unwrap();
    let mut running = Running(running);
    let each = || came_since(&scene.lab, before);
    until("both carry it", || each().iter().all(|bytes| *bytes > 300_000));
    let mut flapping = second_interface::flaps(&scene.lab, &scene.client.state());
    let mut most = 0;
    let ended = loop {
        most = most.max(second_interface::memory_below(running.0.id()));
        if let Some(ended) = running.0.try_wait().unwrap() {
            break ended;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    };
    println!("{:?} bytes by the interfaces, {most} bytes of memory at most", each());
    assert!(ended.success());
    assert!(fs::read(scene.client.path("file")).unwrap() == scene.bytes, "other bytes");
    // The limits of a stream in each direction, plus the program.
    assert!((1 << 20..100 << 20).contains(&most), "{most} bytes");
    assert!(flapping.wait().unwrap().success());
    let log = scene.fra.take().unwrap().1.end();
    let lines: Vec<_> = log.iter().filter(|line| line.contains("bond_link")).collect();
    assert!(lines.len() <= 10, "{lines:?}");
}

/// TCP connects over this interface at once, but to a portal, which answers sooner than the relay. The portal's answer
/// must not be taken for the relay's.
#[test]
fn a_captive_portal_is_not_taken_for_the_relay() {
    let Some(scene) = &scene() else { return };
    if !has_nft() {
        return;
    }
    let _portals = second_interface::portal(&scene.lab, &["fra", "server"]);
    scene
        .lab
        .set(LINKS[0], &thalweg_lab::topology::LinkChange::parse(&["delay=60ms"]).unwrap())
        .unwrap();
    let each = scene.download_bytes("a portal");
    assert!(each[0] > LENGTH as u64 && each[1] < 20_000, "{each:?}");
}

fn has_nft() -> bool {
    let found = ["/usr/sbin/nft", "/sbin/nft", "/usr/bin/nft"]
        .iter()
        .any(|at| fs::exists(at).unwrap_or(false));
    if !found {
        eprintln!("skipped: nft is not installed (scripts/setup installs it)");
    }
    found
}
