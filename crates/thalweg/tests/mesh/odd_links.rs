//! Bonds of a client whose second interface is out of the ordinary.

use crate::{
    bond_lab::{LENGTH, Scene, URL, scene},
    host::{text, until},
    in_lab::{Running, within},
    odd,
    two_links::{LINKS, came, came_since},
};
use std::{fs, process::Output};

impl Scene {
    fn get(&self) -> Output {
        let args = ["get", URL, "-o", "file", "--json", "--path", "fra%bond"];
        within(&self.lab, "client", &self.client.command(&args)).output().unwrap()
    }

    /// A download; bytes that came by each interface.
    fn comes_whole(&self, why: &str) -> [u64; 2] {
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
fn small_packets_are_as_good_as_large_ones() {
    let Some(scene) = &scene() else { return };
    odd::change(&scene.lab, "client", odd::SMALL_PACKETS);
    let each = scene.comes_whole("576 bytes");
    assert!(each.iter().all(|bytes| *bytes > LENGTH as u64 / 3), "{each:?}");
}

/// The relay has a name with addresses of both families, and listens on IPv4 alone.
#[test]
fn an_interface_that_does_not_lead_there_is_gone_without() {
    let Some(scene) = &scene() else { return };
    odd::change(&scene.lab, "client", odd::V6_ALONE);
    let each = scene.comes_whole("IPv6 alone");
    assert!(each[0] > LENGTH as u64 && each[1] < 20_000, "{each:?}");
}

/// Half of the links of which the far end is told are there for a moment only.
#[test]
fn an_interface_that_flaps_holds_no_stream_up_and_floods_no_log() {
    let Some(mut scene) = scene() else { return };
    let before = came(&scene.lab);
    let args = ["get", URL, "-o", "file", "--json", "--path", "fra%bond"];
    let running = within(&scene.lab, "client", &scene.client.command(&args)).spawn().unwrap();
    let mut running = Running(running);
    let each = || came_since(&scene.lab, before);
    until("both carry it", || each().iter().all(|bytes| *bytes > 300_000));
    let mut flapping = odd::flaps(&scene.lab, &scene.client.state());
    let mut most = 0;
    let ended = loop {
        most = most.max(odd::memory_below(running.0.id()));
        if let Some(ended) = running.0.try_wait().unwrap() {
            break ended;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    };
    println!("{:?} bytes by the interfaces, {most} bytes of memory at most", each());
    assert!(ended.success());
    assert!(fs::read(scene.client.path("file")).unwrap() == scene.bytes, "other bytes");
    // What a stream may hold each way, and the program.
    assert!((1 << 20..100 << 20).contains(&most), "{most} bytes");
    assert!(flapping.wait().unwrap().success());
    let log = scene.fra.take().unwrap().1.end();
    let lines: Vec<_> = log.iter().filter(|line| line.contains("bond_link")).collect();
    assert!(lines.len() <= 10, "{lines:?}");
}

/// TCP connects at once by it, and then another one answers, sooner than the relay itself: that is no word of the relay's.
#[test]
fn who_answers_for_everybody_is_no_relay_and_speaks_for_none() {
    let Some(scene) = &scene() else { return };
    if !has_nft() {
        return;
    }
    let _portals = odd::portal(&scene.lab, &["fra", "server"]);
    scene
        .lab
        .set(LINKS[0], &thalweg_lab::topology::LinkChange::parse(&["delay=60ms"]).unwrap())
        .unwrap();
    let each = scene.comes_whole("a portal");
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
