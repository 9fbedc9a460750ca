//! Collections from several sources.

use super::{Host, Tree, at, ended, events, mesh, named, text, tree};

#[test]
fn several_sources_get_a_directory_each_or_are_merged() {
    let (hosts, _daemons) = mesh(&["nyc", "ber"]);
    let trees: Vec<Tree> =
        (0..3).map(|i| Tree::make(&hosts[i].path("data/run"), i as u8)).collect();
    let lap = Host::joined(&hosts[0], "lap", &[], &["--no-daemon"]);
    let sources =
        [at("fra", &hosts[0], "run"), at("nyc", &hosts[1], "run"), at("ber", &hosts[2], "run")];
    let [fra, nyc, ber] = &sources;
    let output = lap.run(&["gather", fra, nyc, ber, "--into", "all", "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for (name, tree) in ["fra", "nyc", "ber"].iter().zip(&trees) {
        tree.assert_at(&lap.path(&format!("all/{name}/run")));
    }
    let end = ended(&output);
    let bytes: Vec<u64> =
        end["sources"].as_array().unwrap().iter().map(|s| s["bytes"].as_u64().unwrap()).collect();
    assert_eq!(bytes, trees.iter().map(Tree::bytes).collect::<Vec<_>>());

    // The same names with other content are refused before anything is moved.
    let said = lap.fails(2, &["gather", fra, nyc, "--into", "flat", "--flat", "--quiet"]);
    assert!(said.contains("would be both"), "{said}");
    assert!(!lap.path("flat/run").exists() || tree::files(&lap.path("flat")).is_empty());
}

#[test]
fn a_source_that_is_away_costs_only_its_own_data() {
    let (hosts, mut daemons) = mesh(&["nyc"]);
    let tree = Tree::make(&hosts[0].path("data/run"), 1);
    let lap = Host::joined(&hosts[0], "lap", &[], &["--no-daemon"]);
    daemons.remove(1).end();
    let (fra, nyc) = (at("fra", &hosts[0], "run"), at("nyc", &hosts[1], "run"));
    let output = lap.run(&["gather", &nyc, &fra, "--into", "all", "--json"]);
    assert_eq!(output.status.code(), Some(23), "{}", text(&output.stderr));
    tree.assert_at(&lap.path("all/fra/run"));
    let all = events(&output);
    let failed = named(&all, "source_failed");
    assert_eq!((failed.len(), &failed[0]["source"]), (1, &"nyc".into()), "{failed:?}");
    let end = ended(&output);
    assert_eq!((&end["outcome"], &end["failed_sources"]), (&"partial".into(), &1.into()));
    assert!(text(&output.stderr).contains("thalweg: nyc is left out: "));

    let said = lap.fails(4, &["gather", &nyc, "--into", "none", "--quiet"]);
    assert!(said.contains("no source could be listed"), "{said}");
}

#[test]
fn an_unreadable_file_is_named_and_the_rest_is_collected() {
    let (hosts, _daemons) = mesh(&[]);
    let fra = &hosts[0];
    let tree = Tree::make(&fra.path("data/run"), 1);
    std::os::unix::fs::symlink("/etc", fra.path("data/way-out")).unwrap();
    let lap = Host::joined(fra, "lap", &[], &["--no-daemon"]);
    let (run, gone) = (at("fra", fra, "run"), at("fra", fra, "gone"));
    let out = at("fra", fra, "way-out/hostname");
    let args = ["gather", &run, &gone, &out, "--into", "here", "--json"];
    let output = lap.run(&args);
    assert_eq!(output.status.code(), Some(23), "{}", text(&output.stderr));
    tree.assert_at(&lap.path("here/run"));
    assert!(!lap.path("here/hostname").exists());
    let all = events(&output);
    let failed: Vec<&str> =
        named(&all, "file_failed").iter().map(|f| f["file"].as_str().unwrap()).collect();
    assert_eq!(failed.len(), 2, "{failed:?}");
    assert!(failed.iter().any(|f| f.ends_with("gone")), "{failed:?}");
}
