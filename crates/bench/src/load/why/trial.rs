//! Runs one scene: makes its network, mesh, servers and troubles, and reads the verdict of the command.

use super::{
    super::{
        cast::mesh::{CastMesh, MeshOptions},
        get_faults::tracer::Tracer,
        mgrp::program::Program,
    },
    network::topology,
    scene::{Scene, Size, Transfer, Trouble},
};
use crate::program;
use anyhow::{Context as _, bail, ensure};
use rand_core::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::Duration,
};
use thalweg_base::verdict::Verdict;
use thalweg_lab::{client::Lab, topology::Topology};

/// The size of the file that is downloaded from another server before, so that this host has a history.
const EARLIER: usize = 3_000_000;

/// A command that takes longer has failed, seconds.
const PATIENCE: &str = "300";

/// The directories of a scene.
struct Files {
    dir: PathBuf,
}

/// Runs the scene and returns the verdict. Output of the command goes to a file in `keep`.
///
/// # Errors
/// When something does not start, or the command fails or has no verdict.
pub fn run(scene: &Scene, seconds: f64, keep: Option<&Path>) -> anyhow::Result<Verdict> {
    let dir = tempfile::tempdir()?;
    let files = Files::create(dir.path(), scene, seconds)?;
    let lab = Lab::start(&Topology::from_toml(&topology(scene.links))?)?;
    let mesh = mesh(&lab, &files, scene)?;
    let at_c = Client { lab: &lab, mesh: &mesh, files: &files };
    let mut running = Vec::new();
    if let Transfer::Get { .. } = scene.transfer {
        running.extend([files.serve(&lab, "w")?, files.serve(&lab, "x")?]);
        let earlier = files.path("earlier");
        let earlier = ["get", "http://x/honest/earlier", "-o", &earlier];
        at_c.run(&earlier.map(str::to_owned), &[])?;
    }
    running.extend(trouble(&lab, scene)?);
    let wrapper = match scene.trouble {
        Trouble::SlowDisk { host: "c", calls, delay_ms } => slow(&files.dir, calls, delay_ms),
        _ => Vec::new(),
    };
    let output = at_c.run(&files.arguments(scene), &wrapper)?;
    if let Some(keep) = keep {
        fs::create_dir_all(keep)?;
        let all = [&output.stdout[..], &output.stderr[..]].concat();
        fs::write(keep.join(scene.name), all)?;
    }
    let text = String::from_utf8_lossy(&output.stdout);
    verdict(&text).context("the command printed no verdict")
}

/// The last verdict among these events.
fn verdict(events: &str) -> Option<Verdict> {
    let verdict = |line: &str| {
        let event: serde_json::Value = serde_json::from_str(line).ok()?;
        (event["event"] == "verdict").then(|| serde_json::from_value(event).ok())?
    };
    events.lines().rev().find_map(verdict)
}

/// A mesh of the members that the scene needs, with the oracle at `r`.
fn mesh<'a>(lab: &'a Lab, files: &Files, scene: &Scene) -> anyhow::Result<CastMesh<'a>> {
    let hosts: &[&str] = match scene.transfer {
        Transfer::Get { .. } => &["c"],
        Transfer::Send { .. } => &["c", "s"],
        Transfer::Gather { .. } | Transfer::Cast => &["c", "s", "t"],
    };
    let hosts: Vec<String> = hosts.iter().map(|&host| host.to_owned()).collect();
    let wrapped = match scene.trouble {
        Trouble::SlowDisk { host, calls, delay_ms } if host != "c" => {
            Some((host, slow(&files.dir, calls, delay_ms)))
        }
        _ => None,
    };
    let more = format!("{}{}", files.settings(), scene.settings);
    let options = MeshOptions { relays: &[], more: &more, wrapped };
    let mut mesh = CastMesh::create(lab, &files.dir.join("mesh"), "r", &hosts, &options)?;
    mesh.start(&hosts)?;
    Ok(mesh)
}

/// The words before a command that let these system calls take longer.
fn slow(dir: &Path, calls: &str, delay_ms: u32) -> Vec<String> {
    let delay = Duration::from_millis(delay_ms.into());
    Tracer::delay_these(&dir.join("strace"), calls, delay).args()
}

/// Starts what else is slow. It ends on drop.
fn trouble(lab: &Lab, scene: &Scene) -> anyhow::Result<Vec<Program>> {
    match scene.trouble {
        Trouble::Rival => {
            let mut sink = Program::tool(lab, "c", &["tcp-sink", "--listen", "[::]:9000"])?;
            sink.ready()?;
            let flood = ["tcp-flood", "--to", "c:9000", "--for", "10min", "--flows", "2"];
            Ok(vec![sink, Program::tool(lab, "x", &flood)?])
        }
        Trouble::SmallWindow => {
            let set = "echo '4096 32768 65536' > /proc/sys/net/ipv4/tcp_rmem";
            let status = lab.command("c", "sh").args(["-c", set]).status()?;
            ensure!(status.success(), "cannot set the size of receive buffers");
            Ok(Vec::new())
        }
        Trouble::None | Trouble::SlowDisk { .. } => Ok(Vec::new()),
    }
}

impl Files {
    /// Creates what the scene moves.
    fn create(dir: &Path, scene: &Scene, seconds: f64) -> anyhow::Result<Self> {
        let files = Self { dir: dir.to_owned() };
        let size = match scene.size {
            Size::AtRate(mbps) => (mbps * 1e6 / 8.0 * seconds) as usize,
            Size::Bytes(bytes) => bytes,
        };
        for name in ["w", "x", "from-s", "from-t", "accept"] {
            fs::create_dir_all(dir.join(name))?;
        }
        let mut random = Xoshiro256PlusPlus::seed_from_u64(29);
        let mut write = |name: &str, size: usize| {
            let mut bytes = vec![0; size];
            random.fill_bytes(&mut bytes);
            fs::write(dir.join(name), bytes).with_context(|| format!("cannot write {name}"))
        };
        match scene.transfer {
            Transfer::Get { .. } => {
                write("x/earlier", EARLIER)?;
                write("w/file", size)?;
            }
            Transfer::Gather { .. } => {
                write("from-s/a", size)?;
                write("from-t/b", size)?;
            }
            Transfer::Send { .. } | Transfer::Cast => write("file", size)?,
        }
        Ok(files)
    }

    fn path(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }

    /// The settings of all nodes.
    fn settings(&self) -> String {
        let offer = |name| format!("{{ path = \"{}\", to = [\"*\"] }}", self.path(name));
        format!(
            "[files]\nkeep_free = \"0 B\"\noffer = [{}, {}]\n\
             accept = [{{ path = \"{}\", from = [\"*\"] }}]\n",
            offer("from-s"),
            offer("from-t"),
            self.path("accept")
        )
    }

    /// A web server at this host.
    fn serve(&self, lab: &Lab, host: &str) -> anyhow::Result<Program> {
        let directory = self.path(host);
        let mut server =
            Program::tool(lab, host, &["web-faults", &directory, "--listen", "[::]:80"])?;
        server.ready()?;
        Ok(server)
    }

    /// The arguments of the command under test.
    fn arguments(&self, scene: &Scene) -> Vec<String> {
        let (from, into) = (
            |host: &str| format!("{host}:{}", self.path(&format!("from-{host}"))),
            self.path("here"),
        );
        let (words, options): (Vec<String>, &[&str]) = match scene.transfer {
            Transfer::Get { faults, options } => {
                let url = format!("http://w/{faults}/file");
                (vec!["get".into(), url, "-o".into(), self.path("file")], options)
            }
            Transfer::Gather { options } => {
                (vec!["gather".into(), from("s"), from("t"), "--into".into(), into], options)
            }
            Transfer::Send { options } => {
                let to = format!("s:{}", self.path("accept"));
                (vec!["send".into(), self.path("file"), to], options)
            }
            Transfer::Cast => {
                (vec!["cast".into(), self.path("file"), "--to".into(), "r,s,t".into()], &[])
            }
        };
        let options = options.iter().map(|&option| option.to_owned());
        words.into_iter().chain(options).chain(["--json".to_owned()]).collect()
    }
}

/// Runs commands at `c`.
struct Client<'a> {
    lab: &'a Lab,
    mesh: &'a CastMesh<'a>,
    files: &'a Files,
}

impl Client<'_> {
    fn run(&self, arguments: &[String], wrapper: &[String]) -> anyhow::Result<Output> {
        let mut command: Command = self.lab.command("c", "timeout");
        command.arg(PATIENCE).args(wrapper).arg(program::product()?).args(arguments);
        command.env("THALWEG_STATE", self.mesh.state("c")).current_dir(&self.files.dir);
        let output = command.stdin(Stdio::null()).output()?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            bail!("`thalweg {}` failed: {}", arguments[0], text.trim());
        }
        Ok(output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_base::verdict::Bound;

    #[test]
    fn the_last_verdict_counts() {
        let line = |bound| {
            format!(r#"{{"event":"verdict","bound":"{bound}","text":"It is.","evidence":[]}}"#)
        };
        let events = format!("{}\n{{\"event\":\"note\"}}\nnone\n{}\n", line("disk"), line("path"));
        assert_eq!(verdict(&events).map(|verdict| verdict.bound), Some(Bound::Path));
        assert_eq!(verdict("{\"event\":\"finished\"}\n"), None);
    }
}
