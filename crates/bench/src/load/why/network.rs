//! The network of a scene: six hosts, each with an access link, and a link between each two of them.

use std::fmt::Write as _;

/// `c` runs the command; `r`, `s` and `t` are other members, `w` and `x` web servers.
pub const HOSTS: [&str; 6] = ["c", "r", "s", "t", "w", "x"];

/// The usual rate of an access link, `c`, and of a link between two, `c-w`, Mbit/s.
const ACCESS: f64 = 40.0;
const BETWEEN: f64 = 60.0;

/// Their usual delays, ms.
const ACCESS_DELAY: u32 = 5;
const BETWEEN_DELAY: u32 = 10;

/// How a link differs from the usual one, in both directions.
#[derive(Clone, Copy)]
pub struct LinkChange {
    link: &'static str,
    mbps: Option<f64>,
    delay_ms: Option<u32>,
    loss_percent: f64,
}

impl LinkChange {
    const fn new(link: &'static str) -> Self {
        Self { link, mbps: None, delay_ms: None, loss_percent: 0.0 }
    }

    /// A link of this rate.
    pub const fn rate(link: &'static str, mbps: f64) -> Self {
        Self { mbps: Some(mbps), ..Self::new(link) }
    }

    /// A link of this delay, one way.
    pub const fn delay(link: &'static str, ms: u32) -> Self {
        Self { delay_ms: Some(ms), ..Self::new(link) }
    }

    /// A link that loses this share of the packets.
    pub const fn loss(link: &'static str, percent: f64) -> Self {
        Self { loss_percent: percent, ..Self::new(link) }
    }
}

/// The lab's configuration.
pub fn topology(changes: &[LinkChange]) -> String {
    let mut text = "congestion = \"cubic\"\n".to_owned();
    for host in HOSTS {
        _ = writeln!(text, "[host.{host}]");
        link(&mut text, host, (ACCESS, ACCESS_DELAY), changes);
    }
    for (index, from) in HOSTS.iter().enumerate() {
        for to in &HOSTS[index + 1..] {
            link(&mut text, &format!("{from}-{to}"), (BETWEEN, BETWEEN_DELAY), changes);
            _ = writeln!(
                text,
                "[[path]]\nfrom = \"{from}\"\nto = \"{to}\"\n\
                 links = [\"{from}\", \"{from}-{to}\", \"{to}.rev\"]"
            );
        }
    }
    text
}

fn link(text: &mut String, name: &str, (mbps, delay): (f64, u32), changes: &[LinkChange]) {
    let usual = LinkChange::new("");
    let change = changes.iter().find(|change| change.link == name).unwrap_or(&usual);
    let (mbps, delay) = (change.mbps.unwrap_or(mbps), change.delay_ms.unwrap_or(delay));
    _ = writeln!(text, "[link.{name}]\nrate = \"{mbps} Mbit/s\"\ndelay = \"{delay} ms\"");
    if change.loss_percent > 0.0 {
        _ = writeln!(text, "loss = \"{} %\"", change.loss_percent);
    }
}

#[cfg(test)]
mod tests {
    use super::{super::scene::SCENES, *};
    use thalweg_lab::topology::Topology;

    #[test]
    fn every_scene_has_a_network_with_the_links_that_it_changes() {
        for scene in SCENES {
            let text = topology(scene.links);
            Topology::from_toml(&text).unwrap().resolve().unwrap();
            for change in scene.links {
                assert!(text.contains(&format!("[link.{}]", change.link)), "{}", scene.name);
            }
        }
    }
}
