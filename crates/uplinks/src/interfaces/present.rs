//! Which of this host's interfaces connections are assigned to; no I/O.

use super::{settings::Settings, table::Present};
use thalweg_net::{Interface, into_the_world};

/// Those that lead into the world and that the settings leave, in the kernel's order of preference.
pub fn present(found: &[Interface], settings: &Settings) -> Vec<Present> {
    let wanted = into_the_world(found, |name| settings.wish(name));
    wanted.into_iter().map(|i| Present { index: i.index.get(), name: i.name }).collect()
}
