//! `thalweg-bench load why`: transfers whose bottleneck is known, in networks of their own, and what their verdict says.
//!
//! ```text
//! scene ─► lab, mesh, servers, trouble ─► thalweg get|gather|send|cast --json ─► event `verdict` = the scene's bound?
//! ```
//!
//! Each [`scene`] makes one part of the way clearly slower than all others: its rate is less than half of theirs. The
//! results are `right`, the number of scenes whose verdict names that part, `scenes`, and for each scene a text with
//! the verdict. A scene in which the command fails counts as wrong.

mod network;
mod scene;
mod trial;

use super::report::Report;
use anyhow::{bail, ensure};
use scene::{SCENES, Scene};
use std::{path::PathBuf, time::Instant};
use thalweg_base::verdict::Verdict;

/// Arguments of `thalweg-bench load why`.
#[derive(clap::Args)]
pub struct Args {
    /// The scenes, by name or by the command that they run; or `all`
    #[arg(long, value_name = "SCENE,…", value_delimiter = ',', default_value = "all")]
    scenes: Vec<String>,
    /// How long a transfer takes at the rate of its bottleneck, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    seconds: f64,
    /// Write each scene's events and messages to a file in this directory
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
}

/// Runs the scenes and prints the report.
///
/// # Errors
/// When a scene is not known, a network cannot be made, or a program is missing.
pub fn run(args: &Args) -> anyhow::Result<()> {
    ensure!((1.0..=600.0).contains(&args.seconds), "--seconds must be between 1 and 600");
    let scenes = selected(&args.scenes)?;
    let (mut report, mut right) = (Report::default(), 0);
    for scene in &scenes {
        let began = Instant::now();
        let found = trial::run(scene, args.seconds, args.keep.as_deref());
        let is_right = found.as_ref().is_ok_and(|verdict| verdict.bound == scene.bound);
        right += u32::from(is_right);
        let text = told(scene, &found);
        let mark = if is_right { "right" } else { "WRONG" };
        let seconds = began.elapsed().as_secs_f64();
        thalweg_console::note!("{mark} {}: {text} ({seconds:.0} s)", scene.name);
        report.add(format!("right/{}", scene.name), "", f64::from(u8::from(is_right)));
        report.add_text(scene.name, text);
    }
    report.add("right", "", f64::from(right));
    report.add("scenes", "", scenes.len() as f64);
    report.print()?;
    Ok(())
}

/// The scenes of these names, or of the commands of these names.
fn selected(names: &[String]) -> anyhow::Result<Vec<&'static Scene>> {
    let is_meant = |scene: &Scene, name: &str| {
        name == "all" || name == scene.name || scene.name.split('-').next() == Some(name)
    };
    if let Some(name) = names.iter().find(|name| !SCENES.iter().any(|s| is_meant(s, name))) {
        let known: Vec<&str> = SCENES.iter().map(|scene| scene.name).collect();
        bail!("there is no scene `{name}`; the scenes are {}", known.join(", "));
    }
    Ok(SCENES.iter().filter(|scene| names.iter().any(|name| is_meant(scene, name))).collect())
}

/// What a scene's verdict was, and what it should be.
fn told(scene: &Scene, found: &anyhow::Result<Verdict>) -> String {
    match found {
        Ok(verdict) => {
            let facts =
                verdict.evidence.iter().map(|fact| format!("{}: {}", fact.what, fact.value));
            let facts: Vec<String> = facts.collect();
            let (bound, text) = (verdict.bound, &verdict.text);
            format!("{bound}, expected {}: {text} [{}]", scene.bound, facts.join("; "))
        }
        Err(why) => format!("no verdict, expected {}: {why:#}", scene.bound),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenes_are_selected_by_name_and_by_command() {
        let of = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            selected(&names).map(|found| found.len())
        };
        assert_eq!(of(&["all"]).unwrap(), 20);
        assert_eq!(of(&["get-rival"]).unwrap(), 1);
        assert!(of(&["get", "cast"]).unwrap() > 10);
        assert!(of(&["nothing"]).unwrap_err().to_string().contains("get-rival"));
    }
}
