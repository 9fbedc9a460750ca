//! git over smart HTTP: cloning from and pushing to `git http-backend` behind lighttpd.

use super::scene::{GIT, Scene, succeeds};
use crate::{files::bytes, host::text, running_proxy::has};
use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

const BACKEND: &str = "/usr/lib/git-core/git-http-backend";

/// git without the settings and identity of the user who runs the tests.
fn git(scene: &Scene, at: &str, args: &[&str]) -> Command {
    let mut command = scene.program("git");
    command.arg("-C").arg(scene.path(at)).args(args);
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    for who in ["AUTHOR", "COMMITTER"] {
        command.env(format!("GIT_{who}_NAME"), "a").env(format!("GIT_{who}_EMAIL"), "a@example");
    }
    command
}

fn here(scene: &Scene, at: &str, args: &[&str]) -> Output {
    succeeds(git(scene, at, args))
}

/// Commits a file with this name and length.
fn commit(scene: &Scene, at: &str, file: &str, length: u32) {
    fs::write(scene.path(at).join(file), bytes(length)).unwrap();
    here(scene, at, &["add", file]);
    here(scene, at, &["commit", "-q", "-m", file]);
}

fn head(scene: &Scene, at: &str) -> String {
    text(&here(scene, at, &["rev-parse", "HEAD"]).stdout)
}

/// Serves a bare repository to which anyone may push.
fn serve(scene: &mut Scene) {
    for made in ["git", "source"] {
        fs::create_dir(scene.path(made)).unwrap();
    }
    here(scene, "source", &["init", "-q"]);
    commit(scene, "source", "one", 2_000_000);
    here(scene, ".", &["clone", "-q", "--bare", "source", "git/r.git"]);
    here(scene, "git/r.git", &["config", "http.receivepack", "true"]);
    fs::copy(scene.path("www/big.bin"), scene.path("git/big.bin")).unwrap();
    let root = scene.path("git").display().to_string();
    let settings = format!(
        "server.port = {GIT}\nserver.document-root = \"{root}\"\n\
         mimetype.assign = (\".bin\" => \"application/octet-stream\")\n\
         server.modules = (\"mod_setenv\", \"mod_alias\", \"mod_cgi\")\n\
         $HTTP[\"url\"] =~ \"^/git/\" {{\n  alias.url = (\"/git\" => \"{BACKEND}\")\n  \
           cgi.assign = (\"\" => \"\")\n  setenv.set-environment = (\n    \
           \"GIT_PROJECT_ROOT\" => \"{root}\", \"GIT_HTTP_EXPORT_ALL\" => \"1\")\n}}\n"
    );
    let file = scene.path("lighttpd.conf");
    fs::write(&file, settings).unwrap();
    let mut lighttpd = Command::new("/usr/sbin/lighttpd");
    lighttpd.args(["-D", "-f"]).arg(file);
    scene.serve(&lighttpd, GIT);
}

#[tokio::test(flavor = "multi_thread")]
async fn git_clones_and_pushes_over_a_relay() {
    if !["git", "lighttpd", "nginx", "openssl"].iter().all(|name| has(name)) {
        return;
    }
    if !Path::new(BACKEND).exists() {
        return eprintln!("skipped: there is no {BACKEND}");
    }
    let Some(mut scene) = Scene::new() else { return };
    serve(&mut scene);
    let site = format!("http://git.example:{GIT}");
    scene.learn_paths_to(&format!("{site}/big.bin"));
    let clone = git(&scene, ".", &["clone", "-q", &format!("{site}/git/r.git"), "cloned"]);
    let said = scene.run_by_proxy(&clone);
    assert!(said.contains("by fra") || said.contains("by nyc"), "{said}");
    assert_eq!(head(&scene, "cloned"), head(&scene, "source"));
    here(&scene, "cloned", &["fsck", "--strict"]);
    // Above http.postBuffer (1 MB) git sends chunks.
    commit(&scene, "cloned", "two", 6_000_000);
    let said = scene.run_by_proxy(&git(&scene, "cloned", &["push", "-q", "origin", "HEAD"]));
    assert!(said.contains("POST") && said.contains("MB up"), "{said}");
    assert_eq!(head(&scene, "git/r.git"), head(&scene, "cloned"));
    here(&scene, "git/r.git", &["fsck", "--strict"]);
}
