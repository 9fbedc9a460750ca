//! Programs inside hosts of an emulated Internet.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};
use thalweg_lab::{client::Lab, topology::Topology};

/// The lab; where none is possible `None`, with the reason printed. CI must be able to, unless
/// THALWEG_SKIP is set.
pub fn lab(network: &str) -> Option<Lab> {
    let open = fs::File::options().read(true).write(true).open("/dev/net/tun");
    let started = match open {
        Ok(_) => Lab::start(&Topology::from_toml(network).unwrap()).map_err(|e| e.to_string()),
        Err(e) => Err(format!("/dev/net/tun: {e}")),
    };
    let told = started.inspect_err(|why| {
        let set = |name| std::env::var_os(name).is_some();
        assert!(!set("CI") || set("THALWEG_SKIP"), "no lab here: {why}");
        eprintln!("skipped: no lab here: {why}");
    });
    told.ok()
}

/// The same command inside a host of the lab.
pub fn within(lab: &Lab, place: &str, command: &Command) -> Command {
    let mut inside = lab.command(place, command.get_program());
    inside.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => inside.env(name, value),
            None => inside.env_remove(name),
        };
    }
    inside.current_dir(command.get_current_dir().unwrap_or(Path::new("/")));
    inside.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    inside
}
