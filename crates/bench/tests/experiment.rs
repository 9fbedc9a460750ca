//! `thalweg-bench experiment` as a user runs it, with plans of shell commands on this machine.
#![allow(clippy::unwrap_used)] // helpers of tests fail like tests

use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};
use tempfile::TempDir;

const BENCH: &str = env!("CARGO_BIN_EXE_thalweg-bench");

/// A directory with a plan `experiments/x.toml`, in which the programs run.
struct TestProject(TempDir);

impl TestProject {
    fn new(plan: &str) -> Self {
        let project = Self(tempfile::tempdir().unwrap());
        fs::create_dir_all(project.path("experiments")).unwrap();
        fs::create_dir_all(project.path("tmp")).unwrap();
        fs::write(project.path("experiments/x.toml"), plan).unwrap();
        project
    }

    fn path(&self, below: &str) -> PathBuf {
        self.0.path().join(below)
    }

    /// Copies the program into the checkout, as if it had been built there.
    fn built_here(&self) {
        fs::create_dir(self.path("target")).unwrap();
        let copied = Command::new("cp").arg(BENCH).arg(self.path("target/thalweg-bench")).status();
        assert!(copied.unwrap().success()); // by `cp`: our own copy could be busy when run
    }

    fn command(&self, args: &[&str]) -> Command {
        let own = self.path("target/thalweg-bench");
        let mut command = if own.exists() { Command::new(own) } else { Command::new(BENCH) };
        command.arg("experiment").args(args).current_dir(self.0.path());
        // The plans' shell commands find the directory by this variable.
        command.env("PLACE", self.0.path()).env("TMPDIR", self.path("tmp"));
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    fn json(&self, args: &[&str]) -> (i32, Value) {
        let output = self.run(args);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let value = serde_json::from_slice(&output.stdout);
        (output.status.code().unwrap(), value.unwrap_or_else(|e| panic!("{e}: {said}")))
    }

    fn lines(&self, file: &str) -> Vec<String> {
        let text = fs::read_to_string(self.path(file)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

fn error_text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const HEAD: &str = r#"
name = "x"
claim = "the runner runs"
kind = "host"
headline = "score"
[validity]
"#;

/// An arm whose shell script prints its score.
fn arm(name: &str, role: &str, script: &str) -> String {
    format!(
        "[[arm]]\nname = '{name}'\nrole = '{role}'\ncommand = ['sh', '-c', '''{script}''']\n\
         timeout = '30 s'\nexpect = '100 ms'\noutput = 'metrics'\n"
    )
}

fn score(value: &str) -> String {
    format!(r#"echo "{{\"metrics\":{{\"score\":{{\"unit\":\"points\",\"value\":{value}}}}}}}""#)
}

fn check(name: &str, rest: &str) -> String {
    format!("[[check]]\nname = '{name}'\nmetric = 'score'\n{rest}\n")
}

#[test]
fn the_json_is_one_object_with_the_specified_fields() {
    let plan = [
        "seeds = [1, 2, 3]\n",
        HEAD,
        "[quick]\nseeds = [1]\nnot_evaluated = ['slow to judge']\n",
        &arm("ours", "ours", &score("$((10 * {seed}))")),
        &arm("theirs", "peer", &score("5")),
        "[[arm]]\nname='lost'\nrole='solo'\ncommand=['no-such-program']\nrequires=['no-such-program']\ntimeout='1 s'\nexpect='1 s'\n",
        &check("ratio", "of='ours'\nover={best=['theirs']}\nop='>='\nbound=4\npaper='×3'"),
        &check("slow to judge", "of='ours'\naggregate='max'\nop='>='\nbound=30"),
        "[[plot]]\nname='bars'\nkind='bars'\nmetric='score'\n",
    ]
    .concat();
    let project = TestProject::new(&plan);
    let (code, json) = project.json(&["run", "x", "--json"]);
    assert_eq!(code, 0, "{json:#}");
    let keys: Vec<_> = json.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["name", "commit", "machine", "valid", "arms", "checks"]);
    assert_eq!(json["valid"], true);
    let ours = &json["arms"][0]["metrics"]["score"];
    assert_eq!(
        *ours,
        serde_json::json!({"unit": "points", "n": 3, "median": 20.0, "min": 10.0, "max": 30.0})
    );
    assert_eq!(json["arms"][0]["metrics"]["score / best peer"]["median"], 4.0);
    assert_eq!(json["arms"][2]["skipped"], "no-such-program is not installed");
    let ratio = serde_json::json!({"name": "ratio", "value": 4.0, "op": ">=", "bound": 4.0, "pass": true, "paper": "×3"});
    assert_eq!(json["checks"][0], ratio);
    assert!(fs::read_to_string(project.path("results/x/x-bars.svg")).unwrap().contains("<svg"));

    let (code, json) = project.json(&["run", "x", "--quick", "--json"]);
    // The ratio of seed 1 is 2, less than 4; the other check is not evaluated.
    assert_eq!(
        (code, &json["checks"][0]["pass"], &json["checks"][1]["pass"]),
        (2, &Value::Bool(false), &Value::Null)
    );
    let (code, json) = project.json(&["run", "x", "--seed", "7", "--arm", "ours", "--json"]);
    assert_eq!((code, &json["arms"][0]["metrics"]["score"]["max"]), (0, &Value::from(70.0)));
    assert_eq!(json["arms"].as_array().unwrap().len(), 1);
}

#[test]
fn a_failed_arm_and_wrong_bytes_make_a_run_invalid() {
    let copy = |name: &str, script: &str| {
        format!(
            "[[arm]]\nname='{name}'\nrole='ours'\ncommand=['sh','-c','''{script}''']\n\
             timeout='30 s'\nexpect='100 ms'\nverify='data'\n"
        )
    };
    let file = "[[file]]\nname='data'\npath='www/data'\nsize='100 kB'\n";
    let checked = "[[check]]\nname='c'\nmetric='goodput'\nof='a'\nop='>'\nbound=0\n";
    let plan = |script: &str| [HEAD, file, &copy("a", script), checked].concat();

    let good = TestProject::new(&plan("cp {data} {out}"));
    assert_eq!(good.run(&["run", "x"]).status.code(), Some(0));
    for (script, why) in [
        (
            "cp {data} {out}; printf x | dd of={out} conv=notrunc bs=1 seek=50000 2>/dev/null",
            "WRONG BYTES",
        ),
        ("head -c 99999 {data} > {out}", "99999 bytes"),
        ("true", "cannot be read"),
        ("cp {data} {out}; echo broken >&2; exit 3", "exit code 3: broken"),
    ] {
        let output = TestProject::new(&plan(script)).run(&["run", "x"]);
        assert_eq!(output.status.code(), Some(1), "{script}");
        assert!(error_text(&output).contains(why), "{script}: {}", error_text(&output));
    }
}

#[test]
fn all_arms_run_in_turn_in_an_order_that_rotates() {
    let note = |name: &str| format!("echo {name} >> $PLACE/log; {}", score("1"));
    let arms = ["a", "b", "c"].map(|n| arm(n, "ours", &note(n))).concat();
    let plan = ["repeats = 2\nseeds=[1,2]\n", HEAD, &arms, &check("c", "of='a'\nop='>='\nbound=1")]
        .concat();
    let project = TestProject::new(&plan);
    assert_eq!(project.run(&["run", "x"]).status.code(), Some(0));
    assert_eq!(project.lines("log").concat(), "abcbcacababc");
}

#[test]
fn an_aborted_run_resumes_after_its_finished_rounds() {
    // The preparation of seed 2 fails until `mended` exists.
    let service = "[[service]]\nname='prepare'\ncommand=['sh','-c','[ {seed} = 1 ] || [ -e $PLACE/mended ]']\nready={exit=true}\n";
    let note = format!("echo {{seed}} >> $PLACE/log; {}", score("{seed}"));
    let plan = |claim: &str| {
        let head = HEAD.replace("the runner runs", claim);
        [
            "seeds = [1, 2]\n",
            &head,
            service,
            &arm("a", "ours", &note),
            &check("c", "of='a'\nop='>='\nbound=0"),
        ]
        .concat()
    };
    let project = TestProject::new(&plan("one"));
    let output = project.run(&["run", "x"]);
    assert!(
        output.status.code() == Some(1) && error_text(&output).contains("prepare"),
        "{}",
        error_text(&output)
    );
    fs::write(project.path("mended"), "").unwrap();
    let (code, json) = project.json(&["run", "x", "--json"]);
    assert_eq!((code, &json["arms"][0]["metrics"]["score"]["n"]), (0, &Value::from(2)));
    assert_eq!(project.lines("log"), ["1", "2"], "round 1 was not run again");

    // A finished run and a changed plan start afresh.
    assert_eq!(project.run(&["run", "x"]).status.code(), Some(0));
    assert_eq!(project.lines("log").len(), 4);
    fs::remove_file(project.path("mended")).unwrap();
    assert_eq!(project.run(&["run", "x"]).status.code(), Some(1));
    fs::write(project.path("experiments/x.toml"), plan("two")).unwrap();
    let output = project.run(&["run", "x"]);
    assert!(error_text(&output).contains("starting fresh"), "{}", error_text(&output));
}

#[test]
fn faults_kill_services_while_an_arm_runs() {
    let service = "[[service]]\nname='victim'\ncommand=['sh','-c','echo $$ > $PLACE/victim; echo up; exec sleep 1000']\nready={line='up'}\n";
    let script =
        format!("echo go >&2; while [ -e /proc/$(cat $PLACE/victim) ]; do :; done; {}", score("1"));
    let fault = "[[arm.fault]]\nwhen={line='go'}\nkill='victim'\n";
    let plan =
        [HEAD, service, &arm("a", "ours", &script), fault, &check("c", "of='a'\nop='>='\nbound=1")]
            .concat();
    let project = TestProject::new(&plan);
    let output = project.run(&["run", "x"]);
    assert_eq!(output.status.code(), Some(0), "{}", error_text(&output));

    let lost = "[[service]]\nname='weak'\ncommand=['sh','-c','echo $$ > $PLACE/weak; echo up; read line < $PLACE/pipe']\nready={line='up'}\n";
    let script = format!(
        "echo > $PLACE/pipe; until grep -q ') Z' /proc/$(cat $PLACE/weak)/stat; do :; done; {}",
        score("1")
    );
    let project = TestProject::new(
        &[HEAD, lost, &arm("a", "ours", &script), &check("c", "of='a'\nop='>='\nbound=1")].concat(),
    );
    Command::new("mkfifo").arg(project.path("pipe")).status().unwrap();
    let output = project.run(&["run", "x"]);
    assert!(
        output.status.code() == Some(1) && error_text(&output).contains("service weak ended"),
        "{}",
        error_text(&output)
    );
}

/// Waits for a file that a program of the plan writes.
fn wait_for(file: &Path, child: &mut Child) -> String {
    loop {
        match fs::read_to_string(file) {
            Ok(text) if text.ends_with('\n') => return text.trim().to_owned(),
            _ => assert!(child.try_wait().unwrap().is_none(), "the runner ended early"),
        }
    }
}

#[test]
fn an_interrupted_run_leaves_nothing_behind() {
    let service = "[[service]]\nname='s'\ncommand=['sh','-c','sleep 1000 & echo $! > $PLACE/service; echo up; wait']\nready={line='up'}\n";
    let plan = [
        HEAD,
        service,
        &arm("a", "ours", "sleep 1000 & echo $! > $PLACE/arm; wait"),
        &check("c", "of='a'\nop='>='\nbound=1"),
    ]
    .concat();
    let project = TestProject::new(&plan);
    let mut child = project.command(&["run", "x"]).stderr(Stdio::piped()).spawn().unwrap();
    let pids = ["service", "arm"].map(|f| wait_for(&project.path(f), &mut child));
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert!(error_text(&output).contains("interrupted"), "{}", error_text(&output));
    for pid in pids {
        // The process was killed, but its new parent may not have reaped it yet.
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        assert!(stat.is_empty() || stat.contains(") Z"), "{stat}");
    }
    assert_eq!(
        fs::read_dir(project.path("tmp")).unwrap().count(),
        0,
        "the scratch directory is gone"
    );
}

fn git(project: &TestProject, args: &[&str]) {
    let identity = ["-c", "user.name=t", "-c", "user.email=t@example.invalid"];
    let status =
        Command::new("git").args(identity).args(args).current_dir(project.path("")).status();
    assert!(status.unwrap().success(), "git {args:?}");
}

#[test]
fn a_committed_result_needs_a_clean_tree_and_documents_are_updated_from_it() {
    let plan =
        [HEAD, &arm("a", "ours", &score("2")), &check("c", "of='a'\nop='>='\nbound=1")].concat();
    let project = TestProject::new(&plan);
    fs::write(project.path(".gitignore"), "results/\n!experiments/results/\ntmp/\ntarget/\n")
        .unwrap();
    let readme = "# x\n<!-- experiment: x -->\n<!-- /experiment -->\nend\n";
    fs::write(project.path("README.md"), readme).unwrap();
    git(&project, &["init", "-q"]);
    git(&project, &["add", "."]);
    let output = project.run(&["run", "x", "--commit-result"]);
    assert!(
        output.status.code() == Some(1) && !project.path("experiments/results/x.json").exists()
    );
    git(&project, &["commit", "-qm", "x"]);
    let output = project.run(&["run", "x", "--commit-result"]);
    assert_eq!(output.status.code(), Some(1), "the program is of other sources");
    project.built_here();
    let output = project.run(&["run", "x", "--commit-result"]);
    assert_eq!(output.status.code(), Some(0), "{}", error_text(&output));
    assert_eq!(project.run(&["table", "x", "--check"]).status.code(), Some(1), "README is stale");
    assert_eq!(project.run(&["table", "x"]).status.code(), Some(0));
    assert_eq!(project.run(&["table", "x", "--check"]).status.code(), Some(0));
    let text = fs::read_to_string(project.path("README.md")).unwrap();
    let result: Value =
        serde_json::from_slice(&fs::read(project.path("experiments/results/x.json")).unwrap())
            .unwrap();
    let commit = result["commit"].as_str().unwrap();
    assert!(commit.len() == 12 && text.contains(commit) && text.ends_with("end\n"), "{text}");

    let output = project.run(&["run", "x", "--commit-result"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(error_text(&output).contains("dirty"), "{}", error_text(&output));
}

#[test]
fn invalid_plans_and_requests_are_refused_with_the_reason() {
    let good =
        [HEAD, &arm("a", "ours", &score("1")), &check("c", "of='a'\nop='>='\nbound=1")].concat();
    for (from, to, why) in [
        ("headline", "headlin", "unknown field `headlin`"),
        ("of='a'", "of='b'", "no arm matches `b`"),
        ("100 ms", "30 min", "more than 1200 s"),
        ("100 ms", "61 s", "a quick run is estimated"),
        ("'sh'", "'{shell}'", "unknown placeholder {shell}"),
        ("kind = \"host\"", "kind = \"lab\"", "topology"),
        ("timeout = '30 s'", "timeout = '30'", "unit is missing"),
        ("bound=1", "bound=nan", "not a number"),
    ] {
        let output = TestProject::new(&good.replace(from, to)).run(&["run", "x"]);
        assert_eq!(output.status.code(), Some(1), "{to}");
        assert!(error_text(&output).contains(why), "{to}: {}", error_text(&output));
    }
    let project = TestProject::new(&good);
    for (args, why) in [
        (&["run", "y"][..], "there is no experiment `y`"),
        (&["run", "x", "--arm", "z"], "no arm `z`"),
        (&["run", "x", "--topology", "none.toml"], "none.toml"),
        (&["table", "x"], "--commit-result"),
    ] {
        let output = project.run(args);
        assert!(
            output.status.code() == Some(1) && error_text(&output).contains(why),
            "{}",
            error_text(&output)
        );
    }
    fs::write(project.path("file"), "").unwrap();
    for args in [&["run", "x", "--topology", "none.toml"], &["run", "x", "--results", "file/x"]] {
        let said = error_text(&project.run(args));
        assert_eq!(said.matches("(os error").count(), 1, "told once: {said}");
    }
}

#[test]
fn the_plans_of_the_project_stay_within_their_time_limits() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = Command::new(BENCH)
        .args(["experiment", "list", "--json"])
        .current_dir(&root)
        .output()
        .unwrap();
    let list: Value = serde_json::from_slice(&output.stdout).unwrap();
    let names: Vec<_> =
        list.as_array().unwrap().iter().map(|p| p["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"lab-fidelity") && names.contains(&"get-detour-thin"), "{names:?}");
    for plan in list.as_array().unwrap() {
        assert!(plan["estimate_quick_s"].as_u64().unwrap() <= 60, "{plan:#}");
        assert!(!plan["checks"].as_array().unwrap().is_empty(), "{plan:#}");
    }
}

/// Why the lab cannot run here; `None` if it can.
fn no_lab() -> Option<&'static str> {
    let beside = Path::new(BENCH).with_file_name("thalweg-lab");
    let tun = fs::OpenOptions::new().read(true).write(true).open("/dev/net/tun");
    if !beside.is_file() {
        Some("thalweg-lab is not built: cargo build --workspace")
    } else if tun.is_err() {
        Some("/dev/net/tun cannot be opened: run as root, or chmod 0666 /dev/net/tun")
    } else {
        None
    }
}

const LAB: &str = include_str!("fixtures/lab-experiment.toml");

#[test]
fn the_lab_supports_services_faults_cells_and_the_physical_limit() {
    if let Some(why) = no_lab() {
        // In CI all tests must run unless they are explicitly skipped.
        let set = |name| std::env::var_os(name).is_some();
        assert!(!set("CI") || set("THALWEG_SKIP"), "cannot be tested here: {why}");
        eprintln!("skipped: {why}");
        return;
    }
    let project = TestProject::new(LAB);
    let output = project.run(&["run", "x", "--json"]);
    let json: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", error_text(&output)));
    assert_eq!(output.status.code(), Some(0), "{json:#} {}", error_text(&output));
    let curl = &json["arms"][0];
    assert_eq!(
        (&curl["metrics"]["goodput"]["n"], &curl["congestion_control"]),
        (&Value::from(2), &Value::from("cubic"))
    );
    let of_limit = curl["metrics"]["goodput / limit"]["max"].as_f64().unwrap();
    assert!(of_limit > 0.0 && of_limit <= 0.965, "the headers' share cannot be had: {of_limit}");
    assert!(curl["metrics"]["carried"]["min"].as_f64().unwrap() > 2e6, "payload and headers");
    assert!(curl["buffers"]["receive_bytes"].as_u64().unwrap() > 0);
    assert_eq!(json["checks"][1]["value"], 0.0, "{}", error_text(&output));

    let other = "congestion='cubic'\n[host.client]\n[host.server]\n[link.a]\nrate='5 Mbit/s'\ndelay='1 ms'\n\
                 [[path]]\nfrom='client'\nto='server'\nlinks=['a']\n";
    fs::write(project.path("other.toml"), other).unwrap();
    let args = ["run", "x", "--json", "--arm", "curl", "--topology", "other.toml"];
    let (code, json) = project.json(&args);
    assert_eq!(code, 0, "{json:#}");
    let goodput = json["arms"][0]["metrics"]["goodput"]["max"].as_f64().unwrap();
    assert!(goodput > 0.0 && goodput < 5.0, "a link of 5 Mbit/s gave {goodput}");
}
